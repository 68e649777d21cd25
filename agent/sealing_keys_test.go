package agent_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/agent/fetch"
	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/agent/presence"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// seals contains the encryption keys of a simulated coordinator that announces its public key.
type seals struct {
	public wire.X25519PublicKey
	group  wire.SealKey
	pair   wire.AgentSealKeys
}

// seals returns the keys that belong to a secret. From then on, scene.heard decrypts messages that are encrypted with
// these keys.
func (s *scene) seals(secret wire.SealSecret) (is seals) {
	var errs [3]error
	is.public, errs[0] = secret.PublicKey()
	is.group, errs[1] = secret.GroupSealKey()
	is.pair, errs[2] = wire.NewAgentSealKeys(s.cfg.Identity.Key, is.public)
	for _, err := range errs {
		if err != nil {
			s.t.Fatal(err)
		}
	}
	s.known = append(s.known, is)
	return is
}

// sealed returns the header and the body of a message to the agent. The body is encrypted if the message's type
// requires this.
func (is *seals) sealed(h wire.Header, body []byte) (wire.Header, []byte) {
	if t := h.Type; t.MustBeSealed() {
		h.Type = wire.TypeSealed
		body = is.pair.ToAgentKey.SealMessage(is.public, h, t, body)
	}
	return h, body
}

// sealedBlobs returns the announcement with the public key, and with an encrypted task and base model.
func (is *seals) sealedBlobs(a wire.Announcement) wire.Announcement {
	a.SealPublicKey, a.Task = is.public, a.Task.SealInline(is.group)
	if a.BaseModel.IsSet() {
		a.BaseModel = a.BaseModel.SealInline(is.group)
	}
	return a
}

// keyBy returns a message that delivers a group key (the key for decrypting tasks and models) to the agent.
func (s *scene) keyBy(is *seals, group wire.SealKey) []byte {
	m := wire.GroupKeyDelivery{Key: group}
	return s.sign(is.sealed(s.header(wire.TypeGroupKeyDelivery, 4), m.Body()))
}

// hellos returns the hello messages that the agent has encrypted with a key since its last start.
func (s *scene) hellos(is *seals) (all []wire.Hello) {
	s.t.Helper()
	for _, e := range s.heardBy(wire.TypeHello, *is) {
		if e.Epoch != s.cfg.BootEpoch {
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

// wants waits for a hello message that requests the group key with the given ID; 0 means that it requests no key.
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

// TestKeyOfTheGroup checks that an agent requests a missing group key, and accepts the key only from a message that is
// encrypted for this agent. The agent must keep the key across a restart, and request another key when another key is
// announced.
func TestKeyOfTheGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		first, second := s.seals(wire.SealSecret{1}), s.seals(wire.SealSecret{2})
		s.start()
		s.announce(4, first.sealedBlobs(s.training(taskOf("a task"), 0, 0)))
		s.wants(&first, "without the key", first.group.ID(), wire.DeclineFetchFailed)
		open := wire.GroupKeyDelivery{Key: first.group}
		h := s.header(wire.TypeSealed, 4)
		body := first.pair.ToAgentKey.SealMessage(first.public, h, wire.TypeGroupKeyDelivery, open.Body())
		h.Sequence++
		for _, c := range []hostile{
			{name: "an open key", payload: s.sign(s.header(wire.TypeGroupKeyDelivery, 4), open.Body()),
				want: "dropped: sealed"},
			{name: "another key", payload: s.keyBy(&first, second.group), want: "dropped: unwanted"},
			{name: "by another secret", payload: s.keyBy(&second, first.group), want: "dropped: sealed"},
			{name: "in another message", payload: s.sign(h, body), want: "dropped: sealed"},
		} {
			n := len(s.fates())
			s.send(s.topics.CoordinatorToAgent("press"), c.payload)
			if got := s.fates()[n:]; !slices.Equal(got, []string{c.want}) {
				t.Errorf("%s: %q, want %q", c.name, got, c.want)
			}
		}
		s.wants(&first, "after that", first.group.ID(), wire.DeclineFetchFailed)
		s.send(s.topics.CoordinatorToAgent("press"), s.keyBy(&first, first.group))
		s.wants(&first, "with the key", 0, 0)
		s.stop()
		s.start()
		s.send(s.topics.Announcement(), s.announced)
		s.wants(&first, "after a restart", 0, 0)
		s.announce(5, second.sealedBlobs(s.training(taskOf("a task"), 0, 0)))
		s.wants(&second, "with another key", second.group.ID(), 0) // The agent has the task, but lacks the model.
		s.send(s.topics.CoordinatorToAgent("press"), s.keyBy(&second, second.group))
		s.wants(&second, "with that, too", 0, 0)
		s.stop()
		s.start()
		s.announce(3, second.sealedBlobs(s.training(taskOf("a task"), 0, 0)))
		wait(time.Minute)
		if n := len(s.hellos(&second)); n == 0 {
			t.Error("nothing is said against an older announcement")
		}
		// The agent does not wait for the second key, because it does not fetch the model before an invitation.
		if a, c := len(eventsOf[fetch.GroupKeyAwaited](s)), len(eventsOf[fetch.GroupKeyReceived](s)); a != 1 || c != 2 {
			t.Errorf("told %d times that a key is awaited and %d times that it came", a, c)
		}
	})
}

// TestUnsealedMessages checks that the agent drops each unencrypted message of a type that requires encryption.
func TestUnsealedMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.start()
		digest := s.announce(4, s.training(taskOf("a task"), 0, 0))
		invitation := wire.Invitation{Agent: "press", Announcement: digest, RemainingMillis: 60000, StepSizeWeight: 1,
			MustSendUpdate: true}
		standing := wire.HelloAnswer{Announcement: digest, SelectionStatus: wire.StatusSelectionPending}
		key := wire.GroupKeyDelivery{Key: s.keys.group}
		bodies := map[wire.MessageType][]byte{wire.TypeInvitation: invitation.Body(),
			wire.TypeHelloAnswer:      standing.Body(),
			wire.TypeGroupKeyDelivery: key.Body()}
		for typ := wire.TypeAnnouncement; typ <= wire.TypeRenewalAnswer; typ++ {
			if !typ.MustBeSealed() {
				continue
			}
			before := len(eventsOf[agent.MessageDropped](s))
			s.send(s.topics.CoordinatorToAgent("press"), s.sign(s.header(typ, 4), bodies[typ]))
			dropped := eventsOf[agent.MessageDropped](s)[before:]
			if len(dropped) != 1 || dropped[0].Reason != part.DropUnsealFailed ||
				!strings.Contains(dropped[0].Err.Error(), "unencrypted "+typ.String()) {
				t.Errorf("unsealed %s: dropped %+v, want reason %q", typ, dropped, part.DropUnsealFailed)
			}
		}
		wait(10 * time.Second)
		if n := len(s.heard(wire.TypeUpdate)) + len(s.heard(wire.TypeInvitationAccepted)); n > 0 {
			t.Errorf("the agent has answered an unsealed invitation %d times", n)
		}
		s.invite(4, digest)
		wait(10 * time.Second)
		s.update()
	})
}

// TestAnnouncementWithoutKey checks that the agent drops an announcement without a valid key. Before it has received a
// key, it must send no message that requires encryption. Later it must continue to use the last valid key.
func TestAnnouncementWithoutKey(t *testing.T) {
	for why, key := range map[string]wire.X25519PublicKey{
		"the announcement does not contain the key that encrypts messages to the coordinator": {}, "low order": {1}} {
		t.Run(why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t)
				s.cfg.Presence.MetricsReports = presence.MetricsReportConfig{ReportInterval: time.Minute,
					ReadMetrics: func() []wire.ReportMetric { return nil }}
				s.start()
				bad := s.training(taskOf("a task"), 0, 0)
				bad.SealPublicKey = key
				s.announce(4, bad)
				wait(time.Hour)
				for _, typ := range []wire.MessageType{wire.TypeHello, wire.TypeMetricsReport, wire.TypeUpdate,
					wire.TypeInvitationDeclined} {
					if n := len(s.heard(typ)); n > 0 {
						t.Errorf("the agent has sent %d %s messages without a key", n, typ)
					}
				}
				s.announce(5, s.training(taskOf("a task"), 0, 0))
				s.announce(6, bad)
				before := len(s.hellos(&s.keys))
				wait(time.Hour)
				if n := len(s.hellos(&s.keys)); n == before {
					t.Error("the agent has sealed no hello after the second bad announcement")
				}
				if got, want := s.fates(), []string{"dropped: sealed", "dropped: sealed"}; !slices.Equal(got, want) {
					t.Errorf("fates %q, want %q", got, want)
				}
				for _, f := range eventsOf[agent.MessageDropped](s) {
					if !strings.Contains(f.Err.Error(), why) {
						t.Errorf("dropped with error %q, want %q in it", f.Err, why)
					}
				}
				if o := eventsOf[agentround.AnnouncementObeyed](s); len(o) != 1 || o[0].Position.Round != 5 {
					t.Errorf("obeyed %+v, want round 5 only", o)
				}
			})
		})
	}
}

// TestUpdateIsSealed checks that no message of the agent contains a part of its update in plaintext, and that only the
// coordinator's keys decrypt the update.
func TestUpdateIsSealed(t *testing.T) {
	for name, features := range map[string]int{"inline": 2, "in chunks": wire.MaxInlineUpdate/4 + 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t)
				rows := func([]string, string) (*learner.Samples[float32], error) {
					x := make([]float32, 5*features)
					for i := range x {
						x[i] = float32(i%7) - 3
					}
					return learner.NewSamples(features, x, []float32{2, -1, 1, 3, 0}), nil
				}
				s.cfg.TaskData.Source = data.MemorySource(rows)
				s.start()
				task := taskOf("a task")
				task.Features = nil
				for i := range features {
					task.Features = append(task.Features, fmt.Sprintf("x%d", i))
				}
				task.Training.NormalizesStepSize = false
				a := s.training(task, make([]float32, features)...)
				a.InitialCreditChunks = 1
				s.invite(4, s.announce(4, a))
				wait(10 * time.Second)
				_, u := s.update()
				payload := u.InlinePayload
				if features > 2 {
					payload = s.chunk(u.PayloadManifest.Hash)
				}
				if wire.BlobDigest(payload) != u.PayloadManifest.Hash {
					t.Fatal("the payload does not match its hash")
				}
				s.mu.Lock()
				for _, m := range s.said {
					for at := 0; at+8 <= len(payload); at += 8 {
						if bytes.Contains(m.Payload, payload[at:at+8]) {
							t.Errorf("a message on %s contains bytes %d to %d of the update", m.Topic, at, at+7)
							break
						}
					}
				}
				s.mu.Unlock()
				other := s.seals(wire.SealSecret{1})
				sealed := s.heardBy(wire.TypeSealed)
				if len(sealed) == 0 {
					t.Error("the agent has sent no sealed message")
				}
				for _, e := range sealed {
					if _, err := other.pair.FromAgentKey.OpenMessage(e); !errors.Is(err, wire.ErrSealDoesNotOpen) {
						t.Errorf("a message opened with the keys of another secret: %v", err)
					}
				}
			})
		})
	}
}

// chunk returns the payload of an update that the agent has sent in a single encrypted chunk.
func (s *scene) chunk(update wire.Digest) []byte {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.said {
		k, sealed, err := wire.DecodeChunkMessage(m.Payload, update)
		if err != nil {
			continue
		}
		for _, key := range []wire.SealKey{{}, s.keys.group, s.keys.pair.ToAgentKey} {
			if _, err := key.BlobSealer(update).OpenPart(nil, k, sealed); !errors.Is(err, wire.ErrSealDoesNotOpen) {
				s.t.Errorf("the chunk opened with another key: %v", err)
			}
		}
		payload, err := s.keys.pair.FromAgentKey.BlobSealer(update).OpenPart(nil, k, sealed)
		if err != nil {
			s.t.Fatal(err)
		}
		return payload
	}
	s.t.Fatal("the agent has sent no chunk")
	return nil
}
