package coordinatorstatus

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/internal/status"
	"github.com/fedmesh/fedmesh/wire"
)

// TestDataHealth checks the shares over all reporting devices, and that inputs that are unhealthy on fewer than five
// devices are hidden. A device counts with its last report only.
func TestDataHealth(t *testing.T) {
	v := New("", "", time.Now, status.NewBoard(time.Now, nil))
	report := func(i int, inputs ...wire.UnhealthyInput) {
		v.Observe(coordinator.AgentReportReceived{Agent: wire.AgentID(fmt.Sprint("device-", i)),
			Report: wire.AgentMetricsReport{UnhealthyInputs: inputs}})
	}
	half := uint16(32768)
	for i := range 10 {
		switch {
		case i < 4:
			report(i, wire.UnhealthyInput{Name: "pm25", Missing: half}, wire.UnhealthyInput{Name: "temp", Wrong: 65535})
		case i < 5:
			report(i, wire.UnhealthyInput{Name: "pm25", Frozen: 65535})
		default:
			report(i)
		}
	}
	report(9, wire.UnhealthyInput{Name: "temp", Wrong: 1})
	report(9) // the input is healthy again
	got := v.dataHealth()
	if len(got.Inputs) != 1 || got.HiddenInputs != 1 || got.ReportingDevices != 10 {
		t.Fatalf("got %+v", got)
	}
	missing := 4 * float64(half) / 65535 / 10
	if want := (InputHealth{"pm25", 5, missing, 0, 0.1}); !reflect.DeepEqual(got.Inputs[0], want) {
		t.Errorf("got %+v, want %+v", got.Inputs[0], want)
	}
}
