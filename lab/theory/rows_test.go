package theory

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// TestRowsEnumerated compares two exact rounds with an enumeration of all random draws. There are two agents with two
// rows each, and each step uses one row.
func TestRowsEnumerated(t *testing.T) {
	r := Rows{X: [][][]float64{{{1, 0.5}, {-0.4, 1}}, {{0.3, 0.2}, {2, -1}}}, Y: [][]float64{{1, -1}, {1, 0.5}},
		StepSize: 0.07, Steps: 2, Batch: 1}
	about := []float64{0.3, -0.2}
	h := mat.NewSymDense(2, nil)
	for k := range r.X {
		for _, x := range r.X[k] {
			h.SymRankOne(h, 0.5, mat.NewVecDense(2, x)) // two agents with two rows each
		}
	}
	means, excess := r.Curve(about, 2)
	var mean [2]float64
	miss := 0.0
	const outcomes = 256 // number of equally likely outcomes: two rounds, two agents, two steps each
	for o := range outcomes {
		w, bit := [2]float64{}, 0
		for range 2 {
			next := [2]float64{}
			for k := range 2 {
				z := w
				for range 2 {
					i := o >> bit & 1
					bit++
					x := r.X[k][i]
					g := 2 * (x[0]*z[0] + x[1]*z[1] - r.Y[k][i])
					z[0], z[1] = z[0]-r.StepSize*g*x[0], z[1]-r.StepSize*g*x[1]
				}
				next[0], next[1] = next[0]+z[0]/2, next[1]+z[1]/2
			}
			w = next
		}
		e := mat.NewVecDense(2, []float64{w[0] - about[0], w[1] - about[1]})
		mean[0], mean[1], miss = mean[0]+w[0]/outcomes, mean[1]+w[1]/outcomes, miss+mat.Inner(e, h, e)/2/outcomes
	}
	if math.Abs(means[2][0]-mean[0])+math.Abs(means[2][1]-mean[1]) > 1e-13 || math.Abs(excess[2]-miss) > 1e-13 {
		t.Errorf("mean %v, excess %v; want %v, %v", means[2], excess[2], mean, miss)
	}
	r.Batch = 0
	exact, _ := r.Curve(about, 2)
	if math.Abs(exact[2][0]-mean[0]) > 1e-13 { // the mean must not depend on the batch size
		t.Errorf("mean %v with exact gradients, want %v", exact[2], mean)
	}
	r.Batch = 1_000_000
	_, nearly := r.Curve(about, 2)
	if r.Batch = 0; math.Abs(nearly[2]-last(r.Curve(about, 2))) > 1e-5 || nearly[2] >= excess[2] {
		t.Errorf("excess %v with huge batches, %v with exact gradients", nearly[2], last(r.Curve(about, 2)))
	}
}

func last(_ [][]float64, excess []float64) float64 { return excess[len(excess)-1] }
