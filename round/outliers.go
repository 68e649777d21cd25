package round

import (
	"math"
	"slices"

	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/spec"
)

// RecentFolds is of how many folds a plan remembers a [Recent].
const RecentFolds = 20

// How much longer than the median an update is …
const (
	longFrom     = 3 // … and than the recent medians, to be left out when the fold with it is not taken
	outweighFrom = 5 // … to be able to undo what the others do; in a set of n, n − 1 if that is more
)

// explodeFrom is how many times the worst recent risk a model may have.
const explodeFrom = 10

// Recent is what is remembered of a fold to judge the next ones by. It stands in the plan, and so in the journal: a
// fold that is repeated after a crash is judged as it was before.
type Recent struct {
	Risk   float64 // of its model on held-out data; 0 without any
	Length float64 // the median of its updates' lengths
}

// Outliers are the updates of a set that are far longer than the others.
type Outliers struct {
	Usual float64 // the median of the lengths, or the largest of the recent medians if that is more
	Long  []int   // those over 3 times as long as usual: their places in the set, in order
	// Outweighs is that one of them is longer than all others together would be, if these were as long as their median:
	// n − 1 medians, and 5 at least. Of fewer than 5 updates none does.
	Outweighs bool
}

// FindOutliers compares the lengths of a set's updates, ‖v_k‖ for the weight that their steps carried. It needs no
// data: an update that outweighs all others can turn the fold around whatever it says. In a set of three or more the
// median is that of honest agents while they are the majority, and what was usual in recent rounds keeps those of a
// quiet round from being called long. Where the median is 0, or in a set of one or two, nothing can be told.
func FindOutliers(lengths []float64, recent []Recent) Outliers {
	var o Outliers
	for _, r := range recent {
		o.Usual = max(o.Usual, r.Length)
	}
	n := len(lengths)
	if n < 3 {
		return o
	}
	median := slices.Sorted(slices.Values(lengths))[(n-1)/2]
	o.Usual = max(o.Usual, median)
	if median == 0 {
		return Outliers{}
	}
	for k, l := range lengths {
		if l > longFrom*o.Usual {
			o.Long = append(o.Long, k)
			o.Outweighs = o.Outweighs || n >= rule.Fewest && l > max(outweighFrom, float64(n-1))*median
		}
	}
	return o
}

// Remember returns the memory after a fold whose updates had these lengths: of at most RecentFolds folds, the newest
// last.
func Remember(recent []Recent, risk float64, lengths []float64) []Recent {
	median := slices.Sorted(slices.Values(lengths))[(len(lengths)-1)/2]
	recent = append(slices.Clone(recent), Recent{risk, median})
	return recent[max(0, len(recent)-RecentFolds):]
}

// Exploded reports whether a model of that risk on held-out data is too bad to be taken: no number, or over 10 times
// the worst of the recent risks and above floor, the risk of a model that knows nothing. base is the risk of the model
// before, for a run that remembers none.
func Exploded(risk, base, floor float64, recent []Recent) bool {
	worst := 0.0
	for _, r := range recent {
		worst = max(worst, r.Risk)
	}
	if worst == 0 {
		worst = base
	}
	return !(risk <= math.MaxFloat64) || risk > explodeFrom*worst && risk > floor
}

// Length returns ‖v_k‖ for the weight that the agent's step carried, so that agents of different weights compare.
func (p *Plan) Length(weighting spec.Weighting, c Contribution) float64 {
	norm := c.Norm
	if w := p.StepWeight(weighting, c.Weight); w > 0 {
		norm /= w
	}
	return min(norm, math.MaxFloat64)
}

// Without returns the set without the updates at these places.
func Without(set []Contribution, places []int) []Contribution {
	var rest []Contribution
	for k, c := range set {
		if !slices.Contains(places, k) {
			rest = append(rest, c)
		}
	}
	return rest
}
