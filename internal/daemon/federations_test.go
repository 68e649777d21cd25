package daemon

import (
	"testing"

	"github.com/fedmesh/fedmesh/internal/status"
	"github.com/fedmesh/fedmesh/observe"
)

// TestSeveral checks that the status line and the readiness of a device cover all federations of the device.
func TestSeveral(t *testing.T) {
	line := NewStatusLine()
	air, power := line.NewBoard("air"), line.NewBoard("power")
	air.ResolveCondition(status.StartingCondition.Name)
	if line.ReadinessErr() == nil {
		t.Error("ready, and one federation is not open")
	}
	power.ResolveCondition(status.StartingCondition.Name)
	if err := line.ReadinessErr(); err != nil {
		t.Error(err)
	}
	<-line.boardChanged
	var d observe.EventDescription
	d.ShowStatusValue(observe.ConnectionStatus, "connected to the broker")
	air.ApplyDescription(&d)
	d.Reset()
	d.ShowStatusValue(observe.ActivityStatus, "working in round 3")
	power.ApplyDescription(&d)
	select {
	case <-line.boardChanged:
	default:
		t.Error("a change is not reported")
	}
	const want = "air: connected to the broker; power: connecting to the broker; working in round 3"
	if got := line.String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	d.Reset()
	d.RaiseNotReadyCondition("storage", "cannot save the update: full", "free space")
	air.ApplyDescription(&d)
	power.ResolveCondition("storage")
	if err := line.ReadinessErr(); err == nil || err.Error() != "cannot save the update: full; free space" {
		t.Errorf("readiness %v; what one federation resolves must not resolve the condition of another", err)
	}
}
