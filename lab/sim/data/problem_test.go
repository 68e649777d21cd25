package data_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/lab/sim/data"
	"github.com/fedmesh/fedmesh/lab/theory"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// specs returns an instance of every synthetic kind.
func specs() map[string]data.Spec {
	all := map[string]data.Spec{}
	for _, kind := range []data.Kind{data.KindLinear, data.KindLogistic, data.KindBilinear, data.KindRegression,
		data.KindQuadratics, data.KindToy} {
		s := data.DefaultSpec()
		s.Kind, s.Inputs, s.Model.Ridge, s.Spread = kind, 4, 0.1, 0.3
		s.RegressorVar = data.Numbers{1, 2, 0.5, 1}
		s.Eigenvalues = data.Numbers{1, 0.5, 0.25}
		all[string(kind)] = s
	}
	pooled := all["linear"]
	pooled.Pool = 200
	all["pooled"] = pooled
	pooled.Spread = 0
	all["pooled, all alike"] = pooled
	toy := all["toy"]
	toy.Centre, toy.Rows = data.Numbers{1, -0.5}, 50
	all["toy"] = toy
	return all
}

func build(t *testing.T, s data.Spec, agents int) *data.Problem[float64] {
	t.Helper()
	if err := s.Validate(agents); err != nil {
		t.Fatal(err)
	}
	weights := make([]float64, agents)
	for k := range weights {
		weights[k] = 1 + float64(k%3)
	}
	p, err := data.Build[float64](s, agents, weights, false, 7)
	if err != nil || !slices.Equal(p.Weights, weights) {
		t.Fatalf("weights %v, %v", p.Weights, err)
	}
	return p
}

// TestObjective checks the aggregate risk of each problem for consistency and against the agents' data.
func TestObjective(t *testing.T) {
	for name, s := range specs() {
		t.Run(name, func(t *testing.T) {
			p := build(t, s, 5)
			o := p.Objective
			rng := rand.New(rand.NewPCG(1, 2))
			d := p.Model.ParameterCount()
			w, grad := make([]float64, d), make([]float64, d)
			for range 3 {
				for j := range w {
					w[j] = 0.5 * rng.NormFloat64()
				}
				o.Gradient(grad, w)
				for j := range w {
					const h = 1e-5
					at := w[j]
					w[j] = at + h
					up := o.Risk(w)
					w[j] = at - h
					slope := (up - o.Risk(w)) / (2 * h)
					w[j] = at
					if math.Abs(slope-grad[j]) > 1e-6*math.Max(1, math.Abs(slope)) {
						t.Errorf("∂J/∂w_%d is %v, by differences %v", j, grad[j], slope)
					}
				}
				if o.Excess != nil && math.Abs(o.Risk(w)-o.Minimum-o.Excess(w)) > 1e-9*math.Max(1, o.Risk(w)) {
					t.Errorf("risk %v, minimum %v, excess %v", o.Risk(w), o.Minimum, o.Excess(w))
				}
			}
			if o.Minimizer != nil {
				o.Gradient(grad, o.Minimizer)
				for j, g := range grad {
					if math.Abs(g) > 1e-9*math.Max(1, o.Minimum) {
						t.Errorf("gradient %d is %v at the minimiser", j, g)
					}
				}
			}
			agree(t, p)
		})
	}
}

// agree compares the aggregate risk J and its gradient with the mean of the risks and gradients of the agents. The
// latter are computed from all rows of an agent, or from many new samples.
func agree(t *testing.T, p *data.Problem[float64]) {
	t.Helper()
	model, err := learner.NewModel[float64](p.Model)
	if err != nil {
		t.Fatal(err)
	}
	d := p.Model.ParameterCount()
	w, grad, mean, want := make([]float64, d), make([]float64, d), make([]float64, d), make([]float64, d)
	for j := range w {
		w[j] = 0.3 * math.Cos(float64(j))
	}
	total := 0.0
	for _, v := range p.Weights {
		total += v
	}
	load, risk, within := p.Loader(rand.NewPCG(3, 4)), 0.0, 1e-9
	for k := range p.Agents {
		local := load(k)
		s := local.Samples
		if s == nil {
			s, within = drawn(local.Stream, p.Model.Inputs, 40000), 0.03
		}
		share := 1 / float64(p.Agents)
		if p.Weights != nil {
			share = p.Weights[k] / total
		}
		risk += share * model.Gradient(grad, w, s.All())
		for j, g := range grad {
			mean[j] += share * g
		}
	}
	p.Objective.Gradient(want, w)
	if got := p.Objective.Risk(w); math.Abs(got-risk) > within*math.Max(1, risk) {
		t.Errorf("J(w) = %v, the agents' own are %v in the mean", got, risk)
	}
	for j := range want {
		if math.Abs(want[j]-mean[j]) > within*math.Max(1, math.Abs(want[j])) {
			t.Errorf("∂J/∂w_%d = %v, the agents' own are %v in the mean", j, want[j], mean[j])
		}
	}
}

func drawn(s learner.SampleStream[float64], inputs, n int) *learner.Samples[float64] {
	x, y := make([]float64, n*inputs), make([]float64, n)
	for i := range y {
		y[i] = s.Sample(x[i*inputs:][:inputs])
	}
	return learner.NewSamples(inputs, x, y)
}

// TestBilinearAgreesWithTheory compares the risk, which is computed by numerical integration, with the risk of the
// independent code in package theory.
func TestBilinearAgreesWithTheory(t *testing.T) {
	c := data.Classes{Means: data.SaddleMeans(100, 5), Variance: 1, Ridge: 0.1, Hidden: 3}
	o := data.NewClasses[float64](c, nil).Objective
	b := theory.Bilinear{Hidden: 3, Means: c.Means, Variance: 1, Ridge: 0.1}
	w := make([]float64, 18)
	for j := range w {
		w[j] = 0.4 * math.Sin(float64(j+1))
	}
	grad := make([]float64, 18)
	o.Gradient(grad, w)
	if math.Abs(o.Risk(w)-b.Risk(w)) > 1e-9 {
		t.Errorf("J(w) = %v, theory %v", o.Risk(w), b.Risk(w))
	}
	for j, want := range b.Gradient(w) {
		if math.Abs(grad[j]-want) > 1e-9 {
			t.Errorf("∂J/∂w_%d = %v, theory %v", j, grad[j], want)
		}
	}
}

// TestAgentsAreMadeAgain checks that an agent has the same data each time they are generated, in any order of the
// agents. The optimum w_k⁰ of an agent must not depend on whether the optima are stored.
func TestAgentsAreMadeAgain(t *testing.T) {
	small := data.NewLinear[float64](data.Linear{Inputs: 3, Regressors: [][]float64{{1}}, Noise: []float64{0},
		Centre: []float64{1}, Spread: 1}, 10, nil, 5)
	large := data.NewLinear[float64](data.Linear{Inputs: 3, Regressors: [][]float64{{1}}, Noise: []float64{0},
		Centre: []float64{1}, Spread: 1}, 1<<20, nil, 5)
	a, b := small.Loader(rand.NewPCG(1, 1)), large.Loader(rand.NewPCG(1, 1))
	for _, k := range []int{3, 0, 9, 3} {
		x, y := make([]float64, 3), make([]float64, 3)
		u := a(k).Stream.Sample(x)
		b(k + 1)
		if v := b(k).Stream.Sample(y); u != v {
			t.Errorf("agent %d has target %v, made again %v", k, u, v)
		}
	}
}

// TestRowsOfFilters checks that a convolution without hidden layers and biases is not treated as a least-squares
// problem. The risk and the gradient of the problem must equal the risk and the gradient of the model.
func TestRowsOfFilters(t *testing.T) {
	model := learner.Architecture{Kind: spec.ModelConv1D, Inputs: 3, Outputs: 1, Activation: spec.ActivationTanh,
		Risk:        spec.LossSquared,
		Convolution: spec.Convolution{InputChannels: 1, KernelSteps: 2, FiltersPerLayer: []int{2}, PoolSteps: 2}}
	held := learner.NewSamples(3, []float64{1, 2, 0.5, -1, 3, 0.2}, []float64{1, -2})
	p, err := data.NewRows(model, []*learner.Samples[float64]{held}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := learner.NewModel[float64](model)
	if err != nil {
		t.Fatal(err)
	}
	w, got, want := []float64{1, -0.5, 0.2, 0.3, 2, -1}, make([]float64, 6), make([]float64, 6)
	risk := m.Gradient(want, w, held.All())
	if p.Objective.Gradient(got, w); p.Objective.Risk(w) != risk || !slices.Equal(got, want) {
		t.Errorf("risk %v, gradient %v; the model has %v, %v", p.Objective.Risk(w), got, risk, want)
	}
}

// TestFullSquares checks that the loss (γ − hᵀw)² equals the loss ½(γ − hᵀw)² of the same rows scaled by √2.
func TestFullSquares(t *testing.T) {
	x, y := []float64{1, 2, 0.5, -1, 3, 0.2}, []float64{1, -2, 0.5}
	var twice [2][]float64
	for i, numbers := range [2][]float64{x, y} {
		for _, v := range numbers {
			twice[i] = append(twice[i], math.Sqrt2*v)
		}
	}
	rows := func(x, y []float64) []*learner.Samples[float64] {
		return []*learner.Samples[float64]{learner.NewSamples(2, x[:4], y[:2]), learner.NewSamples(2, x[4:], y[2:])}
	}
	model := learner.Architecture{Inputs: 2, Outputs: 1, Risk: spec.LossFullSquared, Ridge: 0.3}
	full, err := data.NewRows(model, rows(x, y), []float64{2, 1})
	if err != nil {
		t.Fatal(err)
	}
	half, err := data.NewSquares(rows(twice[0], twice[1]), 0.3, []float64{2, 1})
	if err != nil {
		t.Fatal(err)
	}
	agree(t, full)
	a, b := full.Objective, half.Objective
	if full.Model.Risk != spec.LossFullSquared || !slices.Equal(a.Minimizer, b.Minimizer) ||
		a.Smoothness != b.Smoothness || a.Excess(y[:2]) != b.Excess(y[:2]) {
		t.Errorf("%+v\n%+v", a, b)
	}
}
