package evaluation_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/round/evaluation"
	"github.com/fedmesh/fedmesh/wire"
)

func near(a *float64, b float64) bool { return a != nil && math.Abs(*a-b) <= 1e-12*(1+math.Abs(b)) }

// classes returns the evaluations of six agents with 10, 20, … 60 held-out rows. The agents classify 0, 20, 20, 40, 40
// and 60 of their rows correctly.
func classes() (all []wire.Evaluation) {
	for i, c := range [][]uint32{{0, 4, 6, 0}, {10, 0, 0, 10}, {20, 5, 5, 0}, {40, 0, 0, 0}, {20, 10, 0, 20},
		{0, 0, 0, 60}} {
		n := uint32(10 * (i + 1))
		all = append(all, wire.Evaluation{Run: 1, ModelVersion: 2, Rows: n, RiskSum: float64(n) * float64(i),
			CorrectRows: c[0] + c[3], ConfusionMatrix: c})
	}
	return all
}

func TestClasses(t *testing.T) {
	var p evaluation.ResultPool
	for i, m := range classes() {
		p.Add(wire.AgentID(fmt.Sprint("a", i)), m)
	}
	p.Add("silent", wire.Evaluation{Run: 1, ModelVersion: 2})
	r := p.Summarize(1)
	if r.ReportingAgents != 6 || r.Rows != 210 || math.Abs(r.Risk-700./210) > 1e-12 || r.R2 != nil ||
		r.ResidualCounts != nil {
		t.Errorf("got %+v", r)
	}
	if want := [][]uint64{{90, 19}, {11, 90}}; !reflect.DeepEqual(r.ConfusionMatrix, want) {
		t.Errorf("confusion %v, want %v", r.ConfusionMatrix, want)
	}
	if !near(r.Accuracy, 180./210) || !near(r.MacroF1, (180./210+180./210)/2) || len(r.Classes) != 2 ||
		r.Classes[1].Rows != 101 || r.Classes[1].CorrectRows != 90 || !near(r.Classes[1].F1, 180./(101+109)) {
		t.Errorf("accuracy %v, classes %+v", *r.Accuracy, r.Classes)
	}
	// The accuracies of the six agents, in ascending order, are 0, 2/3, 0.8, 1, 1 and 1.
	mean := (2./3 + 0.8 + 3) / 6
	variance := mean * mean
	for _, x := range []float64{2. / 3, 0.8, 1, 1, 1} {
		variance += (x - mean) * (x - mean)
	}
	want := evaluation.AgentMetricDistribution{Mean: mean, Variance: variance / 6, Worst: 0, Q10: 1. / 3, Q25: 2./3 +
		0.25*(0.8-2./3),
		Q50: 0.9, Q90: 1}
	checkSpread(t, r.AgentAccuracy, want)
	checkSpread(t, r.AgentRisk, evaluation.AgentMetricDistribution{Mean: 2.5, Variance: 35. / 12, Worst: 5, Q10: 0.5,
		Q25: 1.25,
		Q50: 2.5, Q90: 4.5})
}

func checkSpread(t *testing.T, got *evaluation.AgentMetricDistribution, want evaluation.AgentMetricDistribution) {
	t.Helper()
	if got == nil {
		t.Fatal("no figures of agents")
	}
	g, w := reflect.ValueOf(*got), reflect.ValueOf(want)
	for i := range g.NumField() {
		if math.Abs(g.Field(i).Float()-w.Field(i).Float()) > 1e-12 {
			t.Errorf("%s is %v, want %v", g.Type().Field(i).Name, g.Field(i), w.Field(i))
		}
	}
}

// TestFewAgents checks that the result of fewer than five agents contains only sums over all rows.
func TestFewAgents(t *testing.T) {
	var p evaluation.ResultPool
	for i, m := range classes()[:5] {
		if r := p.Summarize(1); r.AgentRisk != nil || r.AgentAccuracy != nil || r.ReportingAgents != i {
			t.Errorf("of %d agents: %+v", i, r)
		}
		p.Add(wire.AgentID(fmt.Sprint("a", i)), m)
	}
	if r := p.Summarize(1); r.AgentRisk == nil || r.AgentAccuracy == nil {
		t.Errorf("of 5 agents: %+v", r)
	}
}

// TestRegression checks that the combined sums of several agents, each with a part of the rows, equal the sums of one
// agent with all rows.
func TestRegression(t *testing.T) {
	m, err := learner.NewModel[float64](learner.Architecture{Inputs: 2, Outputs: 1, Risk: "squared"})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	w := []float64{0.5, -0.25}
	var x, y []float64
	var p evaluation.ResultPool
	for i := range 7 {
		from := len(y)
		for range 40 + i {
			a, b := rng.NormFloat64(), rng.NormFloat64()
			x, y = append(x, a, b), append(y, 0.4*a-0.2*b+0.1*rng.NormFloat64()+0.3)
		}
		s := learner.NewSamples(2, slices.Clone(x[2*from:]), slices.Clone(y[from:]))
		p.Add(wire.AgentID(fmt.Sprint("a", i)), evaluation.FromScoreSums(1, 2, m.SumScores(w, s)))
	}
	all := learner.NewSamples(2, x, y)
	r, want := p.Summarize(10), m.Score(w, all)
	if r.Rows != uint64(len(y)) || math.Abs(r.Risk-want.Risk) > 1e-12 || !near(r.R2, want.R2) || r.Accuracy != nil ||
		r.MacroF1 != nil || r.AgentAccuracy != nil {
		t.Errorf("got %+v, want %+v", r, want)
	}
	residuals := make([]float64, len(y))
	for i := range y {
		residuals[i] = math.Abs(y[i] - w[0]*x[2*i] - w[1]*x[2*i+1])
	}
	slices.Sort(residuals)
	if len(r.ResidualQuantiles) != 4 {
		t.Fatalf("quantiles %+v", r.ResidualQuantiles)
	}
	for _, q := range r.ResidualQuantiles {
		exact := 10 * residuals[int(math.Ceil(q.Share*float64(len(y))))-1]
		if q.MaxResidual < exact || q.MaxResidual > 1.19*exact {
			t.Errorf("%v of the residuals within %v, exactly %v", q.Share, q.MaxResidual, exact)
		}
	}
}

// TestOrderAndBounds checks that the combined result does not depend on the order of the agents, bit by bit, and that
// every result can be encoded.
func TestOrderAndBounds(t *testing.T) {
	all := []wire.Evaluation{{Rows: 1, RiskSum: 1e99, SSE: 1e100, TargetSum: -1e100, TargetSquareSum: 1e100},
		{Rows: 3, RiskSum: -1e100, SSE: 1e-300, TargetSum: 1e100}, {Rows: math.MaxUint32, RiskSum: 4e109,
			TargetSquareSum: 4e109},
		{Rows: 2, RiskSum: 0.1}, {Rows: 7, RiskSum: 0.7, SSE: 0.3, TargetSquareSum: 1}}
	var first evaluation.Result
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range 20 {
		var p evaluation.ResultPool
		for _, k := range rng.Perm(len(all)) {
			m := all[k]
			m.Run, m.ModelVersion, m.ResidualHistogram = 1, 2, make([]uint32, learner.ResidualBins)
			m.ResidualHistogram[63] = m.Rows
			p.Add(wire.AgentID(fmt.Sprint("a", k)), m)
		}
		r := p.Summarize(1)
		if _, err := json.Marshal(r); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = r
		} else if !reflect.DeepEqual(r, first) {
			t.Fatalf("in another order %+v, want %+v", r, first)
		}
	}
	if len(first.ResidualQuantiles) != 0 {
		t.Errorf("quantiles %+v of residuals beyond all bins", first.ResidualQuantiles)
	}
}

func TestFits(t *testing.T) {
	numbers := wire.Evaluation{Rows: 1, ResidualHistogram: make([]uint32, learner.ResidualBins)}
	two := wire.Evaluation{Rows: 1, ConfusionMatrix: []uint32{1, 0, 0, 0}, CorrectRows: 1}
	many := wire.Evaluation{Rows: 1, CorrectRows: 1}
	program := wire.Evaluation{Rows: 1, ExternalMetrics: []wire.ExternalMetric{}}
	for _, m := range []wire.Evaluation{numbers, two, many} {
		if evaluation.FitsModelKind(&m, true, 0) {
			t.Errorf("%+v of an external model", m)
		}
	}
	if !evaluation.FitsModelKind(&program, true, 0) || !evaluation.FitsModelKind(&wire.Evaluation{}, true, 0) {
		t.Error("an external model's do not fit")
	}
	for _, c := range []struct {
		m       wire.Evaluation
		classes int
		fits    bool
	}{{program, 0, false}, {program, 65, false}, {numbers, 0, true}, {numbers, 2, false}, {two, 2, true},
		{two, 3, false}, {two, 0, false}, {many, 65, true}, {many, 64, false}, {many, 0, false}, {numbers, 65, false},
		{wire.Evaluation{}, 2, true}} {
		if got := evaluation.FitsModelKind(&c.m, false, c.classes); got != c.fits {
			t.Errorf("%+v of %d classes: %v", c.m, c.classes, got)
		}
	}
}

// TestFigures checks the combined metrics of external models, including metrics with misleading names.
func TestFigures(t *testing.T) {
	var p evaluation.ResultPool
	for i := range 5 {
		figures := map[string]float64{"accuracy": float64(i) / 4, "Top 5": 1, "auc": 0.5, "nan": math.NaN()}
		if i == 0 {
			delete(figures, "auc")
		}
		p.Add(wire.AgentID(fmt.Sprint("a", i)), evaluation.FromExternalProgram(1, 2, 10*(i+1), float64(i), figures))
	}
	r := p.Summarize(1)
	if r.ReportingAgents != 5 || r.Rows != 150 || math.Abs(r.Risk-400./150) > 1e-12 || r.R2 != nil ||
		r.ResidualCounts != nil ||
		r.ConfusionMatrix != nil || r.MacroF1 != nil {
		t.Errorf("got %+v", r)
	}
	if !near(r.Accuracy, 100./150) || len(r.ExternalMetrics) != 2 || r.ExternalMetrics["auc"] != 0.5 ||
		r.ExternalMetrics["accuracy"] != *r.Accuracy {
		t.Errorf("accuracy %v, figures %v", r.Accuracy, r.ExternalMetrics)
	}
	checkSpread(t, r.AgentAccuracy, evaluation.AgentMetricDistribution{Mean: 0.5, Variance: 0.125, Worst: 0, Q10: 0.1,
		Q25: 0.25,
		Q50: 0.5, Q90: 0.9})

	loud := map[string]float64{}
	for i := range wire.MaxExternalMetrics + 1 {
		loud[fmt.Sprintf("a%02d", i)] = 1
	}
	m := evaluation.FromExternalProgram(1, 2, 1, 0, loud)
	if len(m.ExternalMetrics) != wire.MaxExternalMetrics || m.ExternalMetrics[15].Name != "a15" {
		t.Fatalf("figures %v", m.ExternalMetrics)
	}
	p.Add("loud", m)
	r = p.Summarize(1)
	if len(r.ExternalMetrics) != wire.MaxExternalMetrics || r.ExternalMetrics["auc"] != 0.5 ||
		r.ExternalMetrics["accuracy"] == 0 ||
		r.Accuracy != nil || r.AgentAccuracy != nil {
		t.Errorf("with one who says names of its own and no accuracy: %v, accuracy %v", r.ExternalMetrics, r.Accuracy)
	}
	if m := evaluation.FromExternalProgram(1, 2, 0, 1, loud); m.Rows != 0 || m.ExternalMetrics != nil {
		t.Errorf("without rows %+v", m)
	}
	if m := evaluation.FromExternalProgram(1, 2, 3, 1e200, loud); m.Rows != 0 || m.ExternalMetrics != nil {
		t.Errorf("of a risk beyond bounds %+v", m)
	}
}
