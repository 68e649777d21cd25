package agentd

import (
	"math"
	"slices"
	"strings"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/wire"
)

// unhealthyInputs returns the inputs of which some values could not be used, for the report to the coordinator. A
// report contains shares, but no values. Values that arrived twice are used once, so they are healthy.
func unhealthyInputs(r data.QualityReport) []wire.UnhealthyInput {
	var all []wire.UnhealthyInput
	for _, c := range r.Columns {
		var missing, wrong, frozen uint64
		for reason, n := range c.Unused {
			switch reason {
			case grid.ReasonMissing, grid.ReasonGap, grid.ReasonNoLabel, grid.ReasonNoRoom:
				missing += n
			case grid.ReasonStuck:
				frozen += n
			case grid.ReasonDuplicate:
			default:
				wrong += n
			}
		}
		of := max(c.ReceivedValues, c.Used+missing+wrong+frozen)
		in := wire.UnhealthyInput{Name: c.Name, Missing: share(missing, of), Wrong: share(wrong, of),
			Frozen: share(frozen, of)}
		if c.Name != "" && len(c.Name) <= wire.MaxName && (in.Missing > 0 || in.Wrong > 0 || in.Frozen > 0) {
			all = append(all, in)
		}
	}
	slices.SortFunc(all, func(a, b wire.UnhealthyInput) int { return strings.Compare(a.Name, b.Name) })
	all = slices.CompactFunc(all, func(a, b wire.UnhealthyInput) bool { return a.Name == b.Name })
	return all[:min(len(all), wire.MaxReportInputs)]
}

// share returns n/of in units of 1/65535, and at least 1 if n is positive.
func share(n, of uint64) uint16 {
	if n == 0 {
		return 0
	}
	return max(1, uint16(math.Round(math.MaxUint16*min(1, float64(n)/float64(of)))))
}
