package status_test

import (
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/status"
	"github.com/fedmesh/fedmesh/internal/testkit/surface"
	"github.com/fedmesh/fedmesh/observe"
)

// TestBoard wants a condition to keep the time of its beginning while its texts change, and to end when it is resolved.
func TestBoard(t *testing.T) {
	c := surface.NewClock()
	changed := make(chan struct{}, 1)
	b := status.NewBoard(c.Now, changed)
	var d observe.EventDescription
	d.RaiseCondition("clone s1", "two devices are s1", "rename one")
	d.RaiseNotReadyCondition("storage", "cannot save the model: full", "free space in state_dir")
	b.ApplyDescription(&d)
	began := c.Now()
	c.Advance(time.Minute)
	d.Reset()
	d.RaiseNotReadyCondition("storage", "cannot save the update: full", "free space in state_dir")
	b.ApplyDescription(&d)
	all := b.Conditions()
	if len(all) != 2 || all[0].Name != "clone s1" || all[1].Problem != "cannot save the update: full" ||
		!all[1].Since.Equal(began) {
		t.Errorf("conditions %+v", all)
	}
	if err := b.ReadinessErr(); err == nil || err.Error() != "cannot save the update: full; free space in state_dir" {
		t.Errorf("readiness: %v", err)
	}
	if got, want := b.StatusLine(), "connecting to the broker; see `status` for: clone s1, storage"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	d.Reset()
	d.ResolveCondition("storage")
	d.ShowStatusValue(observe.ConnectionStatus, "connected to the broker")
	d.ShowStatusValue(observe.ActivityStatus, "round 7 is open")
	b.ApplyDescription(&d)
	if err := b.ReadinessErr(); err != nil {
		t.Errorf("readiness after it was resolved: %v", err)
	}
	if got, want := b.StatusLine(),
		"connected to the broker; round 7 is open; see `status` for: clone s1"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if len(changed) != 1 {
		t.Error("a change is not signalled")
	}
	<-changed
	if b.ApplyDescription(&d); len(changed) != 0 {
		t.Error("an event that is repeated is signalled")
	}
	d.Reset()
	d.Log(observe.Info, "nothing to show")
	if b.ApplyDescription(&d); len(changed) != 0 {
		t.Error("an event that changes nothing is signalled")
	}
}
