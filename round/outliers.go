package round

import (
	"math"
	"slices"

	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/spec"
)

// RecentFolds is of how many folds a plan remembers a [Recent].
const RecentFolds = 20

// usualFolds is how many of them tell how long updates usually are: few, since lengths shrink while a model is learned.
const usualFolds = 5

// An update of more than so many times the usual length …
const (
	longFrom  = 3   // … is long: it is clipped, and left out where the fold with it is not taken
	spoilFrom = 100 // … spoils the fold: it is left out, and its agent sits out
)

// outweighFrom is how many times the median of its round a long update has at least that outweighs the others.
const outweighFrom = 5

// explodeFrom is how many times the worst recent risk a model may have.
const explodeFrom = 10

// Recent is what is remembered of a fold to judge the next ones by. It stands in the plan, and so in the journal: a
// fold that is repeated after a crash is judged as it was before.
type Recent struct {
	Risk   float64 // of its model on held-out data; 0 without any
	Length float64 // the median of its updates' lengths
}

// Bounds are how long the updates of a set are, and what that makes of them.
type Bounds struct {
	Usual   float64        // 0: nothing can be told
	Above   []int          // places in the whole set, in order, of the updates that are too long to be taken
	Set     []Contribution // the others, each with the norm that counts of it at most
	Lengths []float64      // of these
	Long    []int          // places in Set, in order, of those over 3 times as long as usual
	// Outweigh are those of Long that are longer than all others together would be if these were as long as their
	// median, n − 1 medians of this set and 5 at least, and over 3 times as long as any of the medians that the plan
	// remembers: near its end a run has quiet rounds in which an honest one is as long. Of fewer than 5 updates none
	// does, and none where the median is 0.
	Outweigh []int
}

// Bound holds a set against the usual length of its updates ([Usual]), for the weight that their steps carried. The
// same set and plan give the same bounds.
func (p *Plan) Bound(by rule.Config, weighting spec.Weighting, set []Contribution) Bounds {
	all := make([]float64, len(set))
	for k, c := range set {
		all[k] = p.Length(weighting, c)
	}
	b := Bounds{Usual: Usual(all, p.Recent)}
	now := median(all)
	others := max(outweighFrom*now, float64(len(all)-1)*now, longFrom*longestOf(p.Recent))
	b.Above = by.Above(b.Usual, all)
	for k, c := range set {
		if slices.Contains(b.Above, k) {
			continue
		}
		c.Most = by.Most(b.Usual, p.inStep(weighting, c))
		if b.Usual > 0 && all[k] > longFrom*b.Usual {
			b.Long = append(b.Long, len(b.Set))
			if len(all) >= rule.Fewest && now > 0 && all[k] > others {
				b.Outweigh = append(b.Outweigh, len(b.Set))
			}
		}
		b.Set, b.Lengths = append(b.Set, c), append(b.Lengths, all[k])
	}
	return b
}

// Usual is how long updates usually are: the median of a set's lengths or, if that is more, of the medians of the last
// 5 folds. Of two middle ones the lower is taken, since a half may lie. So the majority of a round's agents, or that of
// five rounds, would have to lie to make long updates usual; what was usual keeps those of a quiet round from being
// long. Of fewer than 3 updates it is 0: nothing can be told.
func Usual(lengths []float64, recent []Recent) float64 {
	if len(lengths) < 3 {
		return 0
	}
	var before []float64
	for _, r := range recent[max(0, len(recent)-usualFolds):] {
		before = append(before, r.Length)
	}
	return max(median(lengths), median(before))
}

// longestOf is the largest of the medians of all folds that are remembered.
func longestOf(recent []Recent) (l float64) {
	for _, r := range recent {
		l = max(l, r.Length)
	}
	return l
}

// median is the lower one of two; 0 of none.
func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(x))[(len(x)-1)/2]
}

// Spoils reports whether an update is so long that its agent sits out.
func Spoils(length, usual float64) bool { return usual > 0 && length > spoilFrom*usual }

// Remember returns the memory after a fold whose updates had these lengths: of at most RecentFolds folds, the newest
// last.
func Remember(recent []Recent, risk float64, lengths []float64) []Recent {
	recent = append(slices.Clone(recent), Recent{risk, median(lengths)})
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
	return min(c.Norm/p.inStep(weighting, c), math.MaxFloat64)
}

// inStep is the weight that the agent's step carried; 1 for none.
func (p *Plan) inStep(weighting spec.Weighting, c Contribution) float64 {
	if w := p.StepWeight(weighting, c.Weight); w > 0 {
		return w
	}
	return 1
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
