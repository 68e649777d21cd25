package daemon

import (
	"testing"

	"github.com/fedmesh/fedmesh/internal/status"
	"github.com/fedmesh/fedmesh/observe"
)

// The status line and the readiness of a device are those of all its federations.
func TestSeveral(t *testing.T) {
	line := NewStatusLine()
	air, power := line.NewBoard("air"), line.NewBoard("power")
	air.Resolve(status.Starting.Name)
	if line.ReadinessErr() == nil {
		t.Error("ready, and one federation is not open")
	}
	power.Resolve(status.Starting.Name)
	if err := line.ReadinessErr(); err != nil {
		t.Error(err)
	}
	<-line.changed
	var d observe.Description
	d.Show(observe.Connection, "connected to the broker")
	air.Apply(&d)
	d.Reset()
	d.Show(observe.Activity, "at work in round 3")
	power.Apply(&d)
	select {
	case <-line.changed:
	default:
		t.Error("a change is not reported")
	}
	const want = "air: connected to the broker; power: connecting to the broker; at work in round 3"
	if got := line.String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	d.Reset()
	d.FailReadiness("storage", "cannot save the update: full", "free space")
	air.Apply(&d)
	power.Resolve("storage")
	if err := line.ReadinessErr(); err == nil || err.Error() != "cannot save the update: full; free space" {
		t.Errorf("readiness %v; what one federation resolves must not resolve the condition of another", err)
	}
}
