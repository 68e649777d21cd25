package daemon

import (
	"errors"
	"testing"
)

// The status line and the readiness of a device are those of all its federations.
func TestSeveral(t *testing.T) {
	line := NewStatus()
	if line.ForFederation("") != line {
		t.Error("the only federation has a line of its own")
	}
	air, power := line.ForFederation("air"), line.ForFederation("power")
	air.LinkChanged(true, nil)
	power.SetActivity("at work in round %d", 3)
	select {
	case <-line.changed:
	default:
		t.Error("a change is not told")
	}
	const want = "air: connected to the broker; power: connecting to the broker; at work in round 3"
	if got := line.String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	ready := make([]Readiness, 2)
	err := AllReady(ready)
	ready[0].SetStateOpened()
	if err() == nil {
		t.Error("ready, and one is not open")
	}
	ready[1].SetStateOpened()
	if err() != nil {
		t.Error(err())
	}
	ready[0].SetStorageFailing("save the update", errors.New("full"))
	ready[1].ClearStorageFailing()
	if err() == nil {
		t.Error("what one mends mends the other")
	}
}
