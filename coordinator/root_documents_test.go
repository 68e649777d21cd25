package coordinator_test

import (
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/identity"
	"github.com/fedmesh/fedmesh/internal/testkit/hosts"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// rooted configures a root document (signed list of trusted keys) and returns a function that creates the next version.
func rooted(f *federation) (next func(coordinator wire.SigningPublicKey,
	also ...wire.SigningPublicKey) []wire.RootDocument) {
	root := hosts.TestKey("root")
	first := wire.RootDocument{Federation: fedName, Version: wire.FirstRootVersion,
		CoordinatorKey: wire.SigningPublicKeyOf(f.coord.key)}
	first.Sign(root, nil)
	f.cfg.RootDocuments = []wire.RootDocument{first}
	for _, a := range f.agents {
		a.cfg.Identity.Root = &first
	}
	return func(coordinator wire.SigningPublicKey, also ...wire.SigningPublicKey) []wire.RootDocument {
		d := f.cfg.RootDocuments[len(f.cfg.RootDocuments)-1]
		d.Version++
		d.CoordinatorKey, d.ExtraCoordinatorKeys = coordinator, also
		d.Sign(root, root)
		f.cfg.RootDocuments = append(slices.Clone(f.cfg.RootDocuments), d)
		return f.cfg.RootDocuments
	}
}

// more waits until n further rounds are closed.
func (f *federation) more(what string, n int) {
	f.t.Helper()
	f.until(time.Hour, what, f.closed(len(events[round.RoundClosed](f))+n))
}

// TestCoordinatorKeyRotates replaces the coordinator's key in three steps without losing a round. A device that was
// offline installs all versions when it returns.
func TestCoordinatorKeyRotates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 3, memory.Options{})
		f.cfg.Round.MaxAggregations, f.cfg.Round.Quorum = 1000, 2
		f.cfg.Round.Gather = round.GatherConfig{TargetAgents: 2, MinAgents: 2, WindowLength: 30 * time.Second,
			HelloSpread: time.Second}
		next := rooted(f)
		before, after := wire.SigningPublicKeyOf(f.coord.key), wire.SigningPublicKeyOf(hosts.TestKey("second"))
		h := newHerald(f)
		f.start()
		f.more("rounds by the first root", 2)
		f.agents[2].stop()
		if err := f.host.SetRootDocuments(t.Context(), next(after, before)); err != nil {
			t.Fatal(err)
		}
		f.more("rounds by the second root, with the key before", 2)
		f.coord.stop()
		f.cfg.Key = hosts.TestKey("second")
		f.coord.start()
		f.more("rounds by the second root, with the key after", 2)
		if err := f.host.SetRootDocuments(t.Context(), next(after)); err != nil {
			t.Fatal(err)
		}
		f.more("rounds by the third root", 2)
		accepted := func() (n int) {
			for _, u := range events[round.UpdateAccepted](f) {
				if u.Agent == "a2" {
					n++
				}
			}
			return n
		}
		was := accepted()
		f.agents[2].start()
		f.until(time.Hour, "an update of the device that was away", func() bool { return accepted() > was })
		if got := len(events[identity.RootDocumentAdopted](f)); got != 6 {
			t.Errorf("%d root documents are taken, want 6", got)
		}
		if n := len(events[round.RoundAbandoned](f)); n > 0 {
			t.Errorf("%d rounds are abandoned", n)
		}
		roots, issued := map[wire.RootVersion]bool{}, uint64(0)
		for _, a := range h.all() {
			roots[a.order.Root] = true
			if a.ann.IssuedAt < issued || a.ann.IssuedAt == 0 {
				t.Errorf("issued %d after %d", a.ann.IssuedAt, issued)
			}
			issued = a.ann.IssuedAt
		}
		if len(roots) != 3 {
			t.Errorf("announced by the roots %v", roots)
		}
	})
}

// TestBurntFloorHeals checks that a federation recovers after a thief of the coordinator's key has announced the
// maximum epoch. Recovery requires a next root document with another coordinator key.
func TestBurntFloorHeals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 3, memory.Options{})
		f.cfg.Round.MaxAggregations = 1000
		next := rooted(f)
		h := newHerald(f)
		f.start()
		f.more("rounds", 2)
		f.coord.kill()
		said := h.all()
		last := said[len(said)-1]
		h.say(wire.SignEnvelope(nil, wire.Header{Type: wire.TypeAnnouncement, Federation: fedName,
			Sender: wire.CoordinatorID,
			Root:   1, Epoch: math.MaxUint64, Run: last.order.Run, Round: last.order.Round, Sequence: 1 << 40},
			last.ann.Body(), f.coord.key))
		wait(time.Minute)
		burnt := 0
		for _, o := range events[agentround.AnnouncementObeyed](f) {
			if o.Position.Epoch == math.MaxUint64 {
				burnt++
			}
		}
		if burnt != 3 {
			t.Fatalf("%d agents obey the thief: nothing is to be healed", burnt)
		}
		<-f.coord.life.done
		f.cfg.Key = hosts.TestKey("second")
		next(wire.SigningPublicKeyOf(f.cfg.Key))
		f.coord.start()
		f.more("rounds with another key", 2)
	})
}
