package agent

import (
	"testing"

	"github.com/fedmesh/fedmesh/wire"
)

// TestSettledRows: the coordinator voids what an agent says of new rows from before it knew that the model has some of
// its rows. So it says the newest such round, also of one whose rows it does not know.
func TestSettledRows(t *testing.T) {
	trained := func(r wire.RoundID, rows int) newRows { return newRows{run: 7, working: mark{round: r, rows: rows}} }
	for _, tt := range []struct {
		name string
		is   newRows
		run  wire.RunID
		r    wire.RoundID
		fate wire.Fate
		want mark
	}{
		{"folded", trained(3, 40), 7, 3, wire.FateFolded, mark{round: 3, rows: 40}},
		{"abandoned", trained(3, 40), 7, 3, wire.FateAbandoned, mark{}},
		{"missed", trained(3, 40), 7, 3, wire.FateMissed, mark{}},
		{"made by an earlier process", newRows{}, 7, 3, wire.FateFolded, mark{round: 3}},
		{"known after the next began", trained(4, 50), 7, 3, wire.FateFolded, mark{round: 3}},
		{"of another run", newRows{run: 6, used: mark{round: 9, rows: 80}}, 7, 2, wire.FateFolded, mark{round: 2}},
	} {
		n := tt.is
		if n.settle(tt.run, tt.r, tt.fate); n.used != tt.want || n.run != 7 && tt.want != (mark{}) {
			t.Errorf("%s: %+v, want %+v used", tt.name, n, tt.want)
		}
	}
}
