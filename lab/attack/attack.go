// Package attack implements false updates that malicious agents send. The simulator and the laboratory's agents
// (lab/liar) use the same table of attacks.
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

// Attack is a kind of attack together with its parameter, such as the factor of a sign flip.
type Attack struct {
	parameter float64
	attackKind
}

// attackKind describes one kind of attack. Exactly one of corruptElement, colludeElement and flipsLabels is set.
type attackKind struct {
	defaultParameter float64 // default of the parameter x; 0 means that the attack has no parameter
	// corruptElement returns the false value of one element v of an update; x is the parameter.
	corruptElement func(v, x float64, rng *rand.Rand) float64
	// colludeElement returns the false value of one element from the mean and the standard deviation of the honest
	// updates.
	colludeElement func(mean, deviation, x float64) float64
	// flipsLabels makes the agent train on false targets and send the resulting update.
	flipsLabels bool
}

var table = map[string]attackKind{
	// signflip multiplies each element of the update by −x, where x is the parameter of the attack.
	"signflip": {defaultParameter: 10, corruptElement: func(v, x float64, _ *rand.Rand) float64 { return -x * v }},
	// constant replaces each element of the update by x, the parameter of the attack.
	"constant": {defaultParameter: 1, corruptElement: func(_, x float64, _ *rand.Rand) float64 { return x }},
	// noise replaces each element of the update by Gaussian noise with standard deviation x.
	"noise": {defaultParameter: 1, corruptElement: func(_, x float64,
		rng *rand.Rand) float64 {
		return x * rng.NormFloat64()
	}},
	// alie is the attack "A Little Is Enough" (Baruch et al. 2019). It sends the mean of the honest updates minus x
	// standard deviations.
	"alie": {defaultParameter: 1.5, colludeElement: func(mean, deviation,
		x float64) float64 {
		return mean - x*deviation
	}},
	// inner is the inner product manipulation of Xie et al. 2019. It sends the mean of the honest updates, multiplied
	// by −x.
	"inner":     {defaultParameter: 0.5, colludeElement: func(mean, _, x float64) float64 { return -x * mean }},
	"labelflip": {flipsLabels: true},
}

// Names returns the sorted names of the attacks with their default parameters, in the syntax of Parse.
func Names() (all []string) {
	for _, name := range slices.Sorted(maps.Keys(table)) {
		if x := table[name].defaultParameter; x != 0 {
			name += ":" + strconv.FormatFloat(x, 'g', -1, 64)
		}
		all = append(all, name)
	}
	return all
}

// Parse parses an attack such as signflip or signflip:10.
func Parse(text string) (Attack, error) {
	name, number, given := strings.Cut(text, ":")
	k, known := table[name]
	if !known {
		return Attack{}, fmt.Errorf("unknown attack, want one of %s with an optional number; got %q",
			strings.Join(Names(), ", "), text)
	}
	a := Attack{k.defaultParameter, k}
	if given {
		x, err := strconv.ParseFloat(number, 64)
		if k.defaultParameter == 0 || err != nil || math.IsInf(x, 0) || math.IsNaN(x) || math.Abs(x) > math.MaxFloat32 {
			return Attack{}, fmt.Errorf("attack %s: invalid number, want one of %s with an optional number", text,
				strings.Join(Names(), ", "))
		}
		a.parameter = x
	}
	return a, nil
}

// FlipsLabels reports whether the attack trains on false targets.
func (a Attack) FlipsLabels() bool { return a.flipsLabels }

// IsCollusion reports whether the attack depends on the updates of the honest agents.
func (a Attack) IsCollusion() bool { return a.colludeElement != nil }

// CorruptUpdate changes an update in place. Attacks that collude or flip labels leave it unchanged.
func CorruptUpdate[T learner.Float](a Attack, v []T, rng *rand.Rand) {
	if a.corruptElement == nil {
		return
	}
	for j, x := range v {
		v[j] = T(a.corruptElement(float64(x), a.parameter, rng))
	}
}

// Collude overwrites dst with the update that all colluding agents send, computed from the honest updates. If honest is
// empty, Collude sets dst to zero.
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

// Flip returns a copy of the rows with false targets. [FlipLabel] returns the false target of one row.
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
