package taskdata

import (
	"testing"

	"github.com/fedmesh/fedmesh/wire"
)

// TestSettledRows checks that the agent's report of new rows contains the newest round whose update is in the model,
// even if the rows of that update are unknown. The coordinator ignores reports that were made before that round.
func TestSettledRows(t *testing.T) {
	trained := func(r wire.RoundID, rows int) newRowCounter {
		return newRowCounter{run: 7, currentRoundRows: trainedRowsEnd{round: r, rowCount: rows}}
	}
	for _, tt := range []struct {
		name string
		is   newRowCounter
		run  wire.RunID
		r    wire.RoundID
		fate wire.UpdateFate
		want trainedRowsEnd
	}{
		{"folded", trained(3, 40), 7, 3, wire.FateAggregated, trainedRowsEnd{round: 3, rowCount: 40}},
		{"abandoned", trained(3, 40), 7, 3, wire.FateRoundAbandoned, trainedRowsEnd{}},
		{"missed", trained(3, 40), 7, 3, wire.FateMissedRoundEnd, trainedRowsEnd{}},
		{"made by an earlier process", newRowCounter{}, 7, 3, wire.FateAggregated, trainedRowsEnd{round: 3}},
		{"known after the next began", trained(4, 50), 7, 3, wire.FateAggregated, trainedRowsEnd{round: 3}},
		{"of another run", newRowCounter{run: 6, usedRows: trainedRowsEnd{round: 9, rowCount: 80}}, 7, 2,
			wire.FateAggregated,
			trainedRowsEnd{round: 2}},
	} {
		n := tt.is
		if n.recordUpdateFate(tt.run, tt.r,
			tt.fate); n.usedRows != tt.want || n.run != 7 && tt.want != (trainedRowsEnd{}) {
			t.Errorf("%s: %+v, want %+v used", tt.name, n, tt.want)
		}
	}
}
