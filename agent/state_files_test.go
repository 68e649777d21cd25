package agent

import (
	"bytes"
	"testing"

	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

func TestDisk(t *testing.T) {
	dir := t.TempDir()
	c := &Config{Dir: dir, Disk: store.Machine, Observer: testkit.Observer(ignoreEvent)}
	place, kept := c.state().Slots(state.ObeyedPosition), c.state().Slots(state.Update)
	if o, d, err := loadObeyed(place); o != (wire.AnnouncementPosition{}) || !d.IsZero() || err != nil {
		t.Errorf("an empty folder has %v %v, %v", o, d, err)
	}
	if u, err := loadUpdate(kept); u != nil || err != nil {
		t.Errorf("an empty folder has %+v, %v", u, err)
	}
	if err := removeRound(c, kept, true); err != nil {
		t.Error(err)
	}
	order, digest := wire.AnnouncementPosition{Root: 1, Epoch: 1, Run: 2, Round: 3, Attempt: 4, Phase: wire.PhaseOpen},
		wire.Digest{5}
	if err := saveObeyed(place, order, digest); err != nil {
		t.Fatal(err)
	}
	if o, d, err := loadObeyed(c.state().Slots(state.ObeyedPosition)); o != order || d != digest || err != nil {
		t.Errorf("got %v %v, %v", o, d, err)
	}
	u := &trainedUpdate{Update: wire.Update{Kind: wire.KindTraining, LocalSteps: 7}, epoch: 5, run: 8, round: 9}
	if err := u.setPayload(bytes.Repeat([]byte{1, 2, 3}, 40000), wire.Digest{6}); err != nil {
		t.Fatal(err)
	}
	if err := saveUpdate(kept, u); err != nil {
		t.Fatal(err)
	}
	got, err := loadUpdate(c.state().Slots(state.Update))
	if err != nil || got.epoch != 5 || got.run != 8 || got.round != 9 || got.LocalSteps != 7 ||
		got.Payload.Hash != u.Payload.Hash ||
		!bytes.Equal(got.payload, u.payload) {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := removeRound(c, kept, true); err != nil {
		t.Error(err)
	}
	if got, err := loadUpdate(c.state().Slots(state.Update)); got != nil || err != nil {
		t.Errorf("after its removal: %+v, %v", got, err)
	}
}

// ignoreEvent observes nothing.
func ignoreEvent(observe.Event) {}
