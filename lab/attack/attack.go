// Package attack is what agents that lie send in the place of their updates: one table, for the simulator and for the
// laboratory's agents (lab/liar).
package attack

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/fedmesh/fedmesh/learner"
)

// Attack is a line of the table with its number.
type Attack struct {
	parameter float64
	attackKind
}

// attackKind is a line of the table. One of its functions is there.
type attackKind struct {
	defaultParameter float64 // where none is given; 0 = it takes none
	// corruptElement makes one number of one of an update.
	corruptElement func(v, x float64, rng *rand.Rand) float64
	// colludeElement makes one of what the honest agents of the round send: of their mean and their standard deviation.
	colludeElement func(mean, deviation, x float64) float64
	// flipsLabels has the agent learn from false targets, and send what comes of it.
	flipsLabels bool
}

var table = map[string]attackKind{
	// The update times −x.
	"signflip": {defaultParameter: 10, corruptElement: func(v, x float64, _ *rand.Rand) float64 { return -x * v }},
	// The same number everywhere.
	"constant": {defaultParameter: 1, corruptElement: func(_, x float64, _ *rand.Rand) float64 { return x }},
	// Gaussian noise with the standard deviation x.
	"noise": {defaultParameter: 1, corruptElement: func(_, x float64,
		rng *rand.Rand) float64 {
		return x * rng.NormFloat64()
	}},
	// A Little Is Enough (Baruch et al. 2019): as far from the mean as honest updates often are.
	"alie": {defaultParameter: 1.5, colludeElement: func(mean, deviation,
		x float64) float64 {
		return mean - x*deviation
	}},
	// Inner product manipulation (Xie et al. 2019): against the mean.
	"inner":     {defaultParameter: 0.5, colludeElement: func(mean, _, x float64) float64 { return -x * mean }},
	"labelflip": {flipsLabels: true},
}

// Names returns the attacks as Parse takes them, sorted, with the numbers that they have where none is given.
func Names() (all []string) {
	for _, name := range slices.Sorted(maps.Keys(table)) {
		if x := table[name].defaultParameter; x != 0 {
			name += ":" + strconv.FormatFloat(x, 'g', -1, 64)
		}
		all = append(all, name)
	}
	return all
}

// Parse reads an attack, such as signflip, or signflip:10.
func Parse(text string) (Attack, error) {
	name, number, given := strings.Cut(text, ":")
	k, known := table[name]
	if !known {
		return Attack{}, fmt.Errorf("want an attack, one of %s, the number as you like; got %q",
			strings.Join(Names(), ", "), text)
	}
	a := Attack{k.defaultParameter, k}
	if given {
		x, err := strconv.ParseFloat(number, 64)
		if k.defaultParameter == 0 || err != nil || math.IsInf(x, 0) || math.IsNaN(x) || math.Abs(x) > math.MaxFloat32 {
			return Attack{}, fmt.Errorf("attack %s: want one of %s, the number as you like", text,
				strings.Join(Names(), ", "))
		}
		a.parameter = x
	}
	return a, nil
}

// FlipsLabels reports whether it is the targets that are false.
func (a Attack) FlipsLabels() bool { return a.flipsLabels }

// IsCollusion reports whether it takes what the honest agents send.
func (a Attack) IsCollusion() bool { return a.colludeElement != nil }

// CorruptUpdate changes an update in place; one of which the targets were false it leaves as it is.
func CorruptUpdate[T learner.Float](a Attack, v []T, rng *rand.Rand) {
	if a.corruptElement == nil {
		return
	}
	for j, x := range v {
		v[j] = T(a.corruptElement(float64(x), a.parameter, rng))
	}
}

// Collude overwrites dst with what the liars of a round send, all the same, where these are the updates of the honest
// agents; with zeros if there is none.
func Collude[T learner.Float](a Attack, dst []T, honest [][]T) {
	clear(dst)
	n := float64(len(honest))
	for j := range dst {
		mean, squares := 0.0, 0.0
		for _, v := range honest {
			mean += float64(v[j]) / n
		}
		for _, v := range honest {
			squares += (float64(v[j]) - mean) * (float64(v[j]) - mean) / n
		}
		if n > 0 {
			dst[j] = T(a.colludeElement(mean, math.Sqrt(squares), a.parameter))
		}
	}
}

// Flip returns rows with false targets, in memory. [FlipLabel] returns the false target of one row.
func Flip[T learner.Float](model learner.Architecture, s *learner.Samples[T]) *learner.Samples[T] {
	all := s.All()
	var x, y []T
	for from := 0; from < s.Len(); from += rowsAtATime {
		part := all.RowRange(from, rowsAtATime)
		x = append(x, part.X...)
		for _, label := range part.Y {
			y = append(y, FlipLabel(model, label))
		}
	}
	return learner.NewSamples(s.FeatureCount(), x, y)
}

const rowsAtATime = 1024

// FlipLabel returns a false target that the model's loss accepts. Class c of C classes becomes C−1−c, and any other
// target y becomes −y. If the loss does not accept −y, it becomes 1/y. If neither is valid, FlipLabel returns y.
func FlipLabel[T learner.Float](model learner.Architecture, y T) T {
	set := model.LabelSet()
	if set.ClassCount > 0 {
		return T(set.ClassCount-1) - y
	}
	for _, flipped := range []T{-y, 1 / y} {
		if flipped-flipped == 0 && set.Contains(float64(flipped)) {
			return flipped
		}
	}
	return y
}
