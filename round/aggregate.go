package round

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// Contribution is an accepted update and its share in the fold.
type Contribution struct {
	Agent       wire.AgentID
	Update      wire.Digest
	Times       int     // n_k
	Weight      float64 // K·p_k
	Coefficient float64 // c_k
}

// Coefficients returns c_k of the fold w_i = w_{i−1} + Σ c_k v_k for the
// accepted participants, in id order, as [Plan.Coefficient] has them.
func Coefficients(accepted []Participant, plan *Plan, weighting spec.Weighting) []Contribution {
	total := 0
	for _, p := range accepted {
		total += p.Times
	}
	set := make([]Contribution, len(accepted))
	for i, p := range accepted {
		set[i] = Contribution{p.Agent, p.Accepted, p.Times, p.Weight,
			plan.Coefficient(weighting, p.Times, total, p.Weight)}
	}
	return set
}

// Coefficient returns c_k of an agent that was drawn n_k times, of N draws that
// were accepted, and has the weight K·p_k:
//
//	parameters, weighting step:  c_k = n_k/N            (ch5 (5.11) in Δ form, notes Alg. 1)
//	parameters, weighting mean:  c_k = K·p_k·n_k/N      (w + (K/L) Σ p_k Δ_k)
//	gradients:                   c_k = −μ·K·p_k·n_k/N   (lecture (14), (34))
//	statistics:                  c_k = 1
func (p *Plan) Coefficient(weighting spec.Weighting, times, total int, weight float64) float64 {
	c := float64(times) / float64(total)
	switch {
	case p.Kind == wire.KindStatistics:
		return 1
	case p.Exchange == spec.ExchangeGradient:
		c *= -p.StepSize * weight
	case weighting == spec.WeightingMean:
		c *= weight
	}
	return c
}

// stepWeight is the weight in the step size of an agent with the weight K·p_k: it has none where the server's average
// does.
func (p *Plan) stepWeight(weighting spec.Weighting, weight float64) float64 {
	if weighting == spec.WeightingStep && p.Exchange != spec.ExchangeGradient {
		return weight
	}
	return 1
}

// AddScaled adds c·v to acc, element by element, where v is the raw
// little-endian payload of elements of T's size, and returns ‖v‖₂. The sum is
// kept in float64 and each product is rounded on its own, so that every CPU
// gets the same bits. It fails, with acc in an undefined state, on a length
// that does not fit or an element that is not finite.
func AddScaled[T wire.Float](acc []float64, c float64, v []byte) (norm float64, err error) {
	size := len(wire.AppendVector[T](nil, []T{0}))
	if len(v) != size*len(acc) {
		return 0, fmt.Errorf("update of %d bytes, want %d for %d elements", len(v), size*len(acc), len(acc))
	}
	sum := 0.0
	for i := range acc {
		var x float64
		x, v = first(v, size)
		if x-x != 0 {
			return 0, fmt.Errorf("element %d is %v: %w", i, x, wire.ErrNotFinite)
		}
		acc[i] += float64(c * x)
		sum += float64(x * x)
	}
	return math.Sqrt(sum), nil
}

// Add adds c·v to acc as AddScaled does with the payload of v, to the bit. It panics if the lengths disagree; elements
// that are not finite are found by Advance.
func Add[T wire.Float](acc []float64, c float64, v []T) {
	if len(v) != len(acc) {
		panic(fmt.Sprintf("round: Add of %d elements to a sum of %d", len(v), len(acc)))
	}
	for i, x := range v {
		acc[i] += float64(c * float64(x))
	}
}

// AddChange is Add of the change v − base, which is rounded to T as an agent sends it.
func AddChange[T wire.Float](acc []float64, c float64, v, base []T) {
	if len(v) != len(acc) || len(base) != len(acc) {
		panic(fmt.Sprintf("round: AddChange of %d elements from a base of %d to a sum of %d", len(v), len(base),
			len(acc)))
	}
	base, acc = base[:len(v)], acc[:len(v)]
	for i, x := range v {
		acc[i] += float64(c * float64(T(x-base[i])))
	}
}

// Norm returns ‖v‖₂ of a raw payload: what AddScaled returns, without the sum.
// It fails on a payload that ends within an element, and on an element that is
// not finite.
func Norm[T wire.Float](v []byte) (float64, error) {
	size := len(wire.AppendVector[T](nil, []T{0}))
	if len(v)%size != 0 {
		return 0, fmt.Errorf("update of %d bytes, want a multiple of %d", len(v), size)
	}
	sum := 0.0
	for i := range len(v) / size {
		var x float64
		x, v = first(v, size)
		if x-x != 0 {
			return 0, fmt.Errorf("element %d is %v: %w", i, x, wire.ErrNotFinite)
		}
		sum += float64(x * x)
	}
	return math.Sqrt(sum), nil
}

// first takes the first element, of 4 or 8 bytes, off a raw payload.
func first(v []byte, size int) (x float64, rest []byte) {
	if size == 4 {
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(v))), v[4:]
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(v)), v[8:]
}

// Advance writes w_i = w_{i−1} + Σ c_k v_k to dst, rounding once to T. Any
// non-finite result is an error and leaves dst undefined. The three must have
// one length: it panics otherwise.
func Advance[T wire.Float](dst, base []T, acc []float64) error {
	if len(dst) != len(base) || len(dst) != len(acc) {
		panic(fmt.Sprintf("round: Advance of %d elements from a base of %d and a sum of %d", len(dst), len(base),
			len(acc)))
	}
	for i := range dst {
		x := T(float64(base[i]) + acc[i])
		if x-x != 0 {
			return fmt.Errorf("parameter %d of the new model is %v: %w", i, x, wire.ErrNotFinite)
		}
		dst[i] = x
	}
	return nil
}
