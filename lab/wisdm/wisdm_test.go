package wisdm_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/fedmesh/fedmesh/lab/wisdm"
	"github.com/fedmesh/fedmesh/learner"
)

// TestProblem compares the numbers of devices, rows and columns with SOURCE.md.
func TestProblem(t *testing.T) {
	p, err := wisdm.Problem()
	if err != nil {
		t.Fatal(err)
	}
	rows, sum, squares := 0, 0., 0.
	classes := map[float32]int{}
	load := p.Loader(rand.NewPCG(1, 2))
	for k := range p.Agents {
		s := load(k).Samples
		rows += s.Len()
		for i := range s.Len() {
			x, y := s.Row(i)
			classes[y]++
			sum, squares = sum+float64(x[0]), squares+float64(x[0])*float64(x[0])
			for _, v := range x {
				if !(math.Abs(float64(v)) <= 5) {
					t.Fatalf("a feature is %v", v)
				}
			}
		}
	}
	n := float64(rows)
	if p.Agents != 27 || rows != 4075 || len(classes) != 6 || p.Labels[3] != "user-05" ||
		p.Model.ParameterCount() != 258 {
		t.Errorf("%d devices, %d rows, classes %v, %d parameters, labels %v", p.Agents, rows, classes,
			p.Model.ParameterCount(),
			p.Labels)
	}
	// Clipping reduces the variance to about 0.84.
	if mean, variance := sum/n, squares/n; math.Abs(mean) > 0.02 || math.Abs(variance-0.84) > 0.01 {
		t.Errorf("the first column has the mean %v and the variance %v", mean, variance)
	}
	if got := p.Metrics[0].Of(make([]float64, 258)); got < 0 || got > 0.5 {
		t.Errorf("a model of zeros has the accuracy %v", got)
	}
	if _, err := learner.NewModel[float32](wisdm.Model()); err != nil {
		t.Error(err)
	}
}
