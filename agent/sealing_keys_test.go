package agent_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/wire"
)

// seals are the keys of a coordinator that announces the key public, for the agent of a scene.
type seals struct {
	public wire.PeerKey
	group  wire.SealKey
	pair   wire.SealKeys
}

// seals returns the keys of a secret. From then on, scene.heard opens messages that the agent seals with these keys.
func (s *scene) seals(secret wire.SealSecret) (is seals) {
	var errs [3]error
	is.public, errs[0] = secret.Public()
	is.group, errs[1] = secret.GroupSealKey()
	is.pair, errs[2] = wire.NewSealKeys(s.cfg.Key, is.public)
	for _, err := range errs {
		if err != nil {
			s.t.Fatal(err)
		}
	}
	s.known = append(s.known, is)
	return is
}

// sealed returns header and body of a message to the agent. The body is sealed if messages of its type must be.
func (is *seals) sealed(h wire.Header, body []byte) (wire.Header, []byte) {
	if t := h.Type; t.Sealed() {
		h.Type = wire.TypeSealed
		body = is.pair.ToAgent.SealMessage(is.public, h, t, body)
	}
	return h, body
}

// sealedBlobs returns the announcement with the public key, and with its task and base model sealed.
func (is *seals) sealedBlobs(a wire.Announcement) wire.Announcement {
	a.SealPublicKey, a.Task = is.public, a.Task.Seal(is.group)
	if a.BaseModel.Present() {
		a.BaseModel = a.BaseModel.Seal(is.group)
	}
	return a
}

// keyBy returns a message that gives the agent the key of a group.
func (s *scene) keyBy(is *seals, group wire.SealKey) []byte {
	m := wire.GroupKey{Key: group}
	return s.sign(is.sealed(s.header(wire.TypeKey, 4), m.Body()))
}

// hellos returns the hellos that the agent has sealed to a key since its last start.
func (s *scene) hellos(is *seals) (all []wire.Hello) {
	s.t.Helper()
	for _, e := range s.heardBy(wire.TypeHello, *is) {
		if e.Epoch != s.cfg.Boot {
			continue
		}
		h, err := wire.DecodeHello(e.Body)
		if err != nil {
			s.t.Fatal(err)
		}
		all = append(all, h)
	}
	return all
}

// wants waits for a hello that asks for a key, or for none with 0.
func (s *scene) wants(is *seals, what string, group uint64, unfit wire.DeclineReason) {
	s.t.Helper()
	wait(15 * time.Second)
	all := s.hellos(is)
	if len(all) == 0 {
		s.t.Fatalf("%s: no hello", what)
	}
	if h := all[len(all)-1]; h.MissingGroupKeyID != group || h.UnfitReason != unfit {
		s.t.Fatalf("%s: a hello asks for key %d, unfit %s; want key %d, unfit %s", what, h.MissingGroupKeyID,
			h.UnfitReason,
			group,
			unfit)
	}
}

// TestKeyOfTheGroup: an agent that lacks the key under which its task is sealed asks for it, takes it from a message
// that is sealed for it only, keeps it over a restart, and asks again when another one is announced.
func TestKeyOfTheGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		first, second := s.seals(wire.SealSecret{1}), s.seals(wire.SealSecret{2})
		s.start()
		s.announce(4, first.sealedBlobs(s.training(taskOf("a task"), 0, 0)))
		s.wants(&first, "without the key", first.group.ID(), wire.DeclineFetch)
		open := wire.GroupKey{Key: first.group}
		h := s.header(wire.TypeSealed, 4)
		body := first.pair.ToAgent.SealMessage(first.public, h, wire.TypeKey, open.Body())
		h.Sequence++
		for _, c := range []hostile{
			{name: "an open key", payload: s.sign(s.header(wire.TypeKey, 4), open.Body()), want: "dropped: unwanted"},
			{name: "another key", payload: s.keyBy(&first, second.group), want: "dropped: unwanted"},
			{name: "by another secret", payload: s.keyBy(&second, first.group), want: "dropped: sealed"},
			{name: "in another message", payload: s.sign(h, body), want: "dropped: sealed"},
		} {
			n := len(s.fates())
			s.send(s.topics.Device("press"), c.payload)
			if got := s.fates()[n:]; !slices.Equal(got, []string{c.want}) {
				t.Errorf("%s: %q, want %q", c.name, got, c.want)
			}
		}
		s.wants(&first, "after that", first.group.ID(), wire.DeclineFetch)
		s.send(s.topics.Device("press"), s.keyBy(&first, first.group))
		s.wants(&first, "with the key", 0, 0)
		s.stop()
		s.start()
		s.send(s.topics.Round(), s.announced)
		s.wants(&first, "after a restart", 0, 0)
		s.announce(5, second.sealedBlobs(s.training(taskOf("a task"), 0, 0)))
		s.wants(&second, "with another key", second.group.ID(), 0) // it has the task, and lacks the model
		s.send(s.topics.Device("press"), s.keyBy(&second, second.group))
		s.wants(&second, "with that, too", 0, 0)
		s.stop()
		s.start()
		s.announce(3, second.sealedBlobs(s.training(taskOf("a task"), 0, 0)))
		wait(time.Minute)
		if n := len(s.hellos(&second)); n == 0 {
			t.Error("nothing is said against an older announcement")
		}
		// The second is not awaited: the model is not fetched before an invitation.
		if a, c := len(factsOf[agent.GroupKeyAwaited](s)), len(factsOf[agent.GroupKeyReceived](s)); a != 1 || c != 2 {
			t.Errorf("told %d times that a key is awaited and %d times that it came", a, c)
		}
	})
}
