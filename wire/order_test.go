package wire_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/wire"
)

// randomOrder returns a random announcement position. Its fields have few different values, so that they are often
// equal, and some extreme values.
func randomOrder(rng *rand.Rand) wire.AnnouncementPosition {
	pick := func() uint64 { return []uint64{0, 1, 2, math.MaxUint32, math.MaxUint64}[rng.IntN(5)] }
	return wire.AnnouncementPosition{
		Root: wire.RootVersion(pick()), Epoch: wire.Epoch(pick()), Run: wire.RunID(pick()), Round: wire.RoundID(pick()),
		Attempt: wire.RoundAttempt(pick()), Phase: oneTo(rng, wire.PhaseFinished),
	}
}

func TestOrderIsTotal(t *testing.T) {
	rng := seeded(6)
	for range 20000 {
		a, b, c := randomOrder(rng), randomOrder(rng), randomOrder(rng)
		if a.Compare(b) != -b.Compare(a) {
			t.Fatalf("%v and %v: %d one way, %d the other", a, b, a.Compare(b), b.Compare(a))
		}
		if (a.Compare(b) == 0) != (a == b) {
			t.Fatalf("%v and %v compare as %d", a, b, a.Compare(b))
		}
		if a.Compare(b) <= 0 && b.Compare(c) <= 0 && a.Compare(c) > 0 {
			t.Fatalf("%v ≤ %v ≤ %v, but the first is after the last", a, b, c)
		}
	}
}

// TestOrderOfAConversation checks that a later announcement compares as later. The first field that differs must
// decide.
func TestOrderOfAConversation(t *testing.T) {
	steps := []wire.AnnouncementPosition{
		{1, 1, 1, 1, 1, wire.PhaseGathering},
		{1, 1, 1, 1, 1, wire.PhaseOpen},
		{1, 1, 1, 1, 1, wire.PhaseIdle},
		{1, 1, 1, 1, 2, wire.PhaseGathering},
		{1, 1, 1, 1, 2, wire.PhaseFinished},
		{1, 1, 1, 2, 1, wire.PhaseGathering},
		{1, 1, 2, 1, 1, wire.PhaseGathering},
		{1, 2, 1, 1, 1, wire.PhaseGathering},
		{2, 1, 1, 1, 1, wire.PhaseGathering},
	}
	if !slices.IsSortedFunc(steps, wire.AnnouncementPosition.Compare) {
		t.Error("a later step is not after the one before it")
	}
	for i := range steps[1:] {
		if steps[i].Compare(steps[i+1]) != -1 {
			t.Errorf("%v is not before %v", steps[i], steps[i+1])
		}
	}
}

func TestOrderOf(t *testing.T) {
	g := pulledAnnouncement()
	got := wire.AnnouncementPositionOf(g.header, g.value.(*wire.Announcement))
	want := wire.AnnouncementPosition{Root: 1, Epoch: 1, Run: goldenRun, Round: 4, Attempt: 2, Phase: wire.PhaseOpen}
	if got != want {
		t.Errorf("order is %v, want %v", got, want)
	}
	if s := got.String(); s != "epoch 1 run 1760000000000 round 4 attempt 2 open" {
		t.Errorf("order reads %q", s)
	}
	got.Root = 2
	if s := got.String(); s != "root 2 epoch 1 run 1760000000000 round 4 attempt 2 open" {
		t.Errorf("order reads %q", s)
	}
}

// TestOutranks checks that a message is outdated if it belongs to an older root document, or to an older epoch under
// the same root document.
func TestOutranks(t *testing.T) {
	o := wire.AnnouncementPosition{Root: 2, Epoch: 5, Run: 9}
	for _, c := range []struct {
		root  wire.RootVersion
		epoch wire.Epoch
		want  bool
	}{{2, 5, false}, {2, 4, true}, {2, 6, false}, {1, 9, true}, {3, 1, false}} {
		if got := o.SupersedesSenderOf(wire.Header{Root: c.root, Epoch: c.epoch, Run: 1}); got != c.want {
			t.Errorf("root %d epoch %d: %v, want %v", c.root, c.epoch, got, c.want)
		}
	}
}
