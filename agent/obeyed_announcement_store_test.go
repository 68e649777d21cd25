package agent

import (
	"testing"

	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// TestObeyedPosition checks that the saved position of the last followed announcement is read after a restart.
func TestObeyedPosition(t *testing.T) {
	c := &Config{StateDir: t.TempDir(), Disk: store.LocalDisk, Observer: testkit.Observer(ignoreEvent)}
	slots := c.stateFolder().OpenSlots(state.ObeyedPosition)
	if o, d, err := loadAnnouncementPosition(slots); o != (wire.AnnouncementPosition{}) || !d.IsZero() || err != nil {
		t.Errorf("an empty folder has %v %v, %v", o, d, err)
	}
	position, digest := wire.AnnouncementPosition{Root: 1, Epoch: 1, Run: 2, Round: 3, Attempt: 4,
		Phase: wire.PhaseOpen}, wire.Digest{5}
	if err := saveAnnouncementPosition(slots, position, digest); err != nil {
		t.Fatal(err)
	}
	if o, d,
		err := loadAnnouncementPosition(c.stateFolder().OpenSlots(state.ObeyedPosition)); o != position ||
		d != digest ||
		err != nil {
		t.Errorf("got %v %v, %v", o, d, err)
	}
}

// ignoreEvent is an observer callback that discards the event.
func ignoreEvent(observe.Event) {}
