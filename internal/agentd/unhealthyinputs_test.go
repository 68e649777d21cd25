package agentd

import (
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/wire"
)

// TestUnhealthyInputs checks the shares of missing, wrong and frozen values, and that healthy inputs are left out.
func TestUnhealthyInputs(t *testing.T) {
	got := unhealthyInputs(data.QualityReport{Columns: []data.ColumnReport{
		{Name: "temp", ReceivedValues: 100, Used: 50, Unused: map[data.UnusedReason]uint64{grid.ReasonMissing: 25,
			grid.ReasonOutOfRange: 10, grid.ReasonNotANumber: 10, grid.ReasonStuck: 5}},
		{Name: "pm25", ReceivedValues: 1_000_000, Used: 999_999, Unused: map[data.UnusedReason]uint64{
			grid.ReasonJump: 1}},
		{Name: "good", ReceivedValues: 100, Used: 99, Unused: map[data.UnusedReason]uint64{grid.ReasonDuplicate: 1}},
		{Name: "gone", Unused: map[data.UnusedReason]uint64{grid.ReasonGap: 7}},
		{ReceivedValues: 3, Unused: map[data.UnusedReason]uint64{grid.ReasonMalformed: 3}},
	}})
	want := []wire.UnhealthyInput{{Name: "gone", Missing: 65535}, {Name: "pm25", Wrong: 1},
		{Name: "temp", Missing: 16384, Wrong: 13107, Frozen: 3277}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
