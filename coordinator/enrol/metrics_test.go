package enrol

import (
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/observe"
)

// TestRefusalWithoutError checks that a refusal without an error is logged without the attribute err.
func TestRefusalWithoutError(t *testing.T) {
	for _, e := range []observe.Event{JoinRefused{Agent: "a", SourceAddress: "127.0.0.1", Reason: 1},
		RenewalRefused{Agent: "a", Reason: 1}} {
		var d observe.EventDescription
		e.Describe(&d)
		if len(d.LogRecords) != 1 || slices.Contains(d.LogRecords[0].Attributes, any("err")) {
			t.Errorf("%T: %+v", e, d.LogRecords)
		}
	}
}
