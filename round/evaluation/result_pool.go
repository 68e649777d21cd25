// Package evaluation makes one result of what agents say of a model on the rows that they hold out: over all rows, over
// the agents, and by class. It is the same for the daemons and the simulator.
package evaluation

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// MinAgentsForDistribution is the number of agents below which a result has nothing but sums over all rows: figures of
// few agents would tell one from another.
const MinAgentsForDistribution = 5

// The places of wire and learner are the same.
var (
	_ [learner.ResidualBins]uint32        = [wire.ResidualHistogramBins]uint32{}
	_ [learner.MaxConfusionClasses]uint32 = [wire.MaxConfusionClasses]uint32{}
)

// FromScoreSums is a tally of a model as an agent says it. One whose sums are no numbers, or too large to be told, has
// no rows.
func FromScoreSums(run wire.RunID, version wire.ModelVersion, t learner.ScoreSums) wire.Evaluation {
	m := wire.Evaluation{Run: run, ModelVersion: version}
	most := wire.MaxRowContribution * float64(t.Samples)
	if t.Samples > 0 && math.Abs(t.RiskSum) <= most && t.SSE <= most && math.Abs(t.TargetSum) <= most &&
		t.TargetSquareSum <= most {
		m.Rows = uint32(t.Samples)
		m.RiskSum, m.SSE, m.TargetSum, m.TargetSquareSum = t.RiskSum, t.SSE, t.TargetSum, t.TargetSquareSum
		m.ResidualHistogram, m.CorrectRows, m.ConfusionMatrix = t.ResidualHistogram, uint32(t.CorrectSamples),
			t.ConfusionMatrix
	}
	return m
}

// FromExternalProgram is what the program of an external model has said of it, on rows that it holds out: means over
// these rows. Figures that cannot be told are left out, and those beyond the first of them, by name, that can.
func FromExternalProgram(run wire.RunID, version wire.ModelVersion, rows int, risk float64,
	figures map[string]float64) wire.Evaluation {
	m := FromScoreSums(run, version, learner.ScoreSums{Samples: rows, RiskSum: float64(rows) * risk})
	if m.Rows == 0 {
		return m
	}
	m.ExternalMetrics = []wire.ExternalMetric{}
	for name, x := range figures {
		if f := (wire.ExternalMetric{Name: name, Sum: float64(rows) * x}); f.IsValidForRows(m.Rows) {
			m.ExternalMetrics = append(m.ExternalMetrics, f)
		}
	}
	sort.Slice(m.ExternalMetrics, func(i, j int) bool { return m.ExternalMetrics[i].Name < m.ExternalMetrics[j].Name })
	m.ExternalMetrics = m.ExternalMetrics[:min(len(m.ExternalMetrics), wire.MaxExternalMetrics)]
	return m
}

// ResultPool takes what agents say of one model. Its zero value is empty.
type ResultPool struct {
	agentEvaluations []agentEvaluation
	residualCounts   []uint64
	confusionCounts  []uint64
	isClassification bool
	isExternalModel  bool // of an external model
}

// agentEvaluation are the sums of one agent.
type agentEvaluation struct {
	agent wire.AgentID
	wire.Evaluation
}

// FitsModelKind reports whether an evaluation has the form of a model's: external, or its number of classes, or 0 of a
// regression.
func FitsModelKind(m *wire.Evaluation, external bool, classes int) bool {
	switch {
	case m.Rows == 0:
		return true
	case external != (m.ExternalMetrics != nil):
		return false
	case external:
		return true // the form has nothing else
	case classes == 0:
		return len(m.ResidualHistogram) == learner.ResidualBins && len(m.ConfusionMatrix) == 0 && m.CorrectRows == 0
	case classes > learner.MaxConfusionClasses:
		return len(m.ResidualHistogram) == 0 && len(m.ConfusionMatrix) == 0
	}
	return len(m.ResidualHistogram) == 0 && len(m.ConfusionMatrix) == classes*classes
}

// Add takes what an agent says; that of another model, or of an agent that has spoken, is the caller's to leave out.
// All fit one form.
func (p *ResultPool) Add(agent wire.AgentID, m wire.Evaluation) {
	if m.Rows == 0 {
		return
	}
	p.residualCounts, p.confusionCounts = addCounts(p.residualCounts, m.ResidualHistogram), addCounts(p.confusionCounts,
		m.ConfusionMatrix)
	p.isExternalModel = p.isExternalModel || m.ExternalMetrics != nil
	p.isClassification = p.isClassification || len(m.ResidualHistogram) == 0 && m.ExternalMetrics == nil
	m.ResidualHistogram, m.ConfusionMatrix = nil, nil
	p.agentEvaluations = append(p.agentEvaluations, agentEvaluation{agent, m})
}

func addCounts(sums []uint64, counts []uint32) []uint64 {
	if len(sums) < len(counts) {
		sums = make([]uint64, len(counts))
	}
	for i, n := range counts {
		sums[i] += uint64(n)
	}
	return sums
}

// Result is what has come of an evaluation.
type Result struct {
	ReportingAgents int     `json:"agents"` // that have spoken of at least as many rows as they were to
	Rows            uint64  `json:"rows"`
	Risk            float64 `json:"risk"` // over all rows, without the ridge
	// Of a regression: R² over all rows, about their mean target (absent if the targets do not vary), and how many
	// residuals are in each bin of docs/PROTOCOL.md, with the ends of the bins that have their quantiles.
	R2                *float64           `json:"r2,omitempty"`
	ResidualCounts    []uint64           `json:"residuals,omitempty"`
	ResidualQuantiles []ResidualQuantile `json:"residuals_within,omitempty"`
	// Of classes: the share of all rows that were taken for their class, the mean F1 of those classes that have one,
	// and each class.
	Accuracy        *float64       `json:"accuracy,omitempty"`
	MacroF1         *float64       `json:"f1,omitempty"`
	Classes         []ClassMetrics `json:"classes,omitempty"`
	ConfusionMatrix [][]uint64     `json:"confusion,omitempty"` // [actual][predicted]
	// Of an external model: the figures of its programs, each the mean over the rows of those agents that have said it,
	// at most wire.MaxExternalMetrics. Accuracy is that of this name.
	ExternalMetrics map[string]float64 `json:"figures,omitempty"`
	// Over agents, each counted once; absent for fewer than MinAgentsForDistribution.
	AgentRisk     *AgentMetricDistribution `json:"agent_risk,omitempty"`
	AgentAccuracy *AgentMetricDistribution `json:"agent_accuracy,omitempty"`
}

// ClassMetrics is one class over all rows.
type ClassMetrics struct {
	Rows        uint64   `json:"rows"`
	CorrectRows uint64   `json:"correct"`
	F1          *float64 `json:"f1,omitempty"` // 2·correct / (rows + taken for it); absent if that is 0 / 0
}

// ResidualQuantile says that a share of the residuals is at most so large, in the units of the target. It is the end of
// a bin: at most 19 % too large. Those of the last bin have none.
type ResidualQuantile struct {
	Share       float64 `json:"share"`
	MaxResidual float64 `json:"size"`
}

// AgentMetricDistribution is a figure over agents: its mean, the mean squared difference from that, the worst, and
// quantiles, between two agents in proportion.
type AgentMetricDistribution struct {
	Mean     float64 `json:"mean"`
	Variance float64 `json:"variance"`
	Worst    float64 `json:"worst"`
	Q10      float64 `json:"q10"`
	Q25      float64 `json:"q25"`
	Q50      float64 `json:"q50"`
	Q90      float64 `json:"q90"`
}

// residualQuantileShares are those of which a result has the quantiles of residuals.
var residualQuantileShares = []float64{0.5, 0.9, 0.99, 0.999}

// Summarize returns what has come, the same in whatever order it came. unit is that of the targets: their scale where
// they are standardised, else 1.
func (p *ResultPool) Summarize(unit float64) Result {
	sort.Slice(p.agentEvaluations, func(i,
		j int) bool {
		return p.agentEvaluations[i].agent < p.agentEvaluations[j].agent
	})
	r := Result{ReportingAgents: len(p.agentEvaluations)}
	var all wire.Evaluation
	var hits uint64
	risks, accuracies := make([]float64, len(p.agentEvaluations)), make([]float64, len(p.agentEvaluations))
	for i, a := range p.agentEvaluations {
		n := float64(a.Rows)
		r.Rows += uint64(a.Rows)
		hits += uint64(a.CorrectRows)
		all.RiskSum, all.SSE = all.RiskSum+a.RiskSum, all.SSE+a.SSE
		all.TargetSum, all.TargetSquareSum = all.TargetSum+a.TargetSum, all.TargetSquareSum+a.TargetSquareSum
		risks[i], accuracies[i] = a.RiskSum/n, float64(a.CorrectRows)/n
	}
	if r.ReportingAgents == 0 {
		return r
	}
	n := float64(r.Rows)
	r.Risk = all.RiskSum / n
	switch {
	case p.isExternalModel:
		r.poolExternalMetrics(p.agentEvaluations, accuracies)
	case p.isClassification:
		r.Accuracy = observe.FiniteOrNil(float64(hits) / n)
		r.fillConfusionAndClasses(p.confusionCounts)
	default:
		if sst := all.TargetSquareSum - all.TargetSum*all.TargetSum/n; sst > 1e-12*all.TargetSquareSum {
			r.R2 = observe.FiniteOrNil(1 - all.SSE/sst)
		}
		r.ResidualCounts = slices.Clone(p.residualCounts)
		r.fillResidualQuantiles(unit)
	}
	if r.ReportingAgents >= MinAgentsForDistribution {
		r.AgentRisk = newAgentMetricDistribution(risks, 1)
		if r.Accuracy != nil {
			r.AgentAccuracy = newAgentMetricDistribution(accuracies, -1)
		}
	}
	return r
}

// poolExternalMetrics pools the figures of programs. Where all have said their accuracy, accuracies gets that of each
// agent.
func (r *Result) poolExternalMetrics(agents []agentEvaluation, accuracies []float64) {
	type sum struct {
		name      string
		said      int
		rows, sum float64
	}
	var sums []sum
	for i, a := range agents {
		for _, f := range a.ExternalMetrics {
			at := slices.IndexFunc(sums, func(s sum) bool { return s.name == f.Name })
			if at < 0 {
				at, sums = len(sums), append(sums, sum{name: f.Name})
			}
			s := &sums[at]
			s.said, s.rows, s.sum = s.said+1, s.rows+float64(a.Rows), s.sum+f.Sum
			if f.Name == accuracyMetricName {
				accuracies[i] = f.Sum / float64(a.Rows)
			}
		}
	}
	// Those that most agents know come first: no agent puts its own names in their places.
	sort.Slice(sums, func(i, j int) bool {
		return sums[i].said > sums[j].said || sums[i].said == sums[j].said && sums[i].name < sums[j].name
	})
	for _, s := range sums[:min(len(sums), wire.MaxExternalMetrics)] {
		if r.ExternalMetrics == nil {
			r.ExternalMetrics = map[string]float64{}
		}
		if x := observe.FiniteOrNil(s.sum / s.rows); x != nil {
			r.ExternalMetrics[s.name] = *x
		}
		if s.name == accuracyMetricName && s.said == len(agents) {
			r.Accuracy = observe.FiniteOrNil(s.sum / s.rows)
		}
	}
}

// FormatExternalMetrics are the figures of programs as people read them, but for the accuracy where that has its own
// place.
func (r *Result) FormatExternalMetrics() string {
	var all []string
	for name, x := range r.ExternalMetrics {
		if name != accuracyMetricName || r.Accuracy == nil {
			all = append(all, fmt.Sprintf("%s %.4g", name, x))
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// accuracyMetricName is the figure of programs that is one of our own models', too.
const accuracyMetricName = "accuracy"

// fillConfusionAndClasses makes rows and classes of the cells.
func (r *Result) fillConfusionAndClasses(cells []uint64) {
	classes := 0
	for classes*classes < len(cells) {
		classes++
	}
	sum, counted := 0.0, 0
	for c := range classes {
		row := cells[c*classes:][:classes]
		r.ConfusionMatrix = append(r.ConfusionMatrix, slices.Clone(row))
		class, taken := ClassMetrics{CorrectRows: row[c]}, uint64(0)
		for other := range classes {
			class.Rows += row[other]
			taken += cells[other*classes+c]
		}
		if class.Rows+taken > 0 {
			class.F1 = observe.FiniteOrNil(2 * float64(class.CorrectRows) / float64(class.Rows+taken))
			sum, counted = sum+*class.F1, counted+1
		}
		r.Classes = append(r.Classes, class)
	}
	if counted > 0 {
		r.MacroF1 = observe.FiniteOrNil(sum / float64(counted))
	}
}

// fillResidualQuantiles finds the bins that have the quantiles of the residuals.
func (r *Result) fillResidualQuantiles(unit float64) {
	for _, share := range residualQuantileShares {
		below := uint64(0)
		for i, n := range r.ResidualCounts {
			if below += n; float64(below) >= share*float64(r.Rows) {
				if end := learner.ResidualBinUpperEnd(i) * unit; !math.IsInf(end, 0) {
					r.ResidualQuantiles = append(r.ResidualQuantiles, ResidualQuantile{share, end})
				}
				break
			}
		}
	}
}

// newAgentMetricDistribution is that of a figure of each agent, the worst of which is the largest, or with bad = −1 the
// smallest.
func newAgentMetricDistribution(x []float64, bad float64) *AgentMetricDistribution {
	x = slices.Clone(x)
	slices.Sort(x)
	var s AgentMetricDistribution
	for _, v := range x {
		s.Mean += v / float64(len(x))
	}
	for _, v := range x {
		s.Variance += (v - s.Mean) * (v - s.Mean) / float64(len(x))
	}
	s.Worst = x[len(x)-1]
	if bad < 0 {
		s.Worst = x[0]
	}
	s.Q10, s.Q25, s.Q50, s.Q90 = quantile(x, 0.1), quantile(x, 0.25), quantile(x, 0.5), quantile(x, 0.9)
	return &s
}

// quantile is at h = (K − 1)q of sorted numbers, in proportion between two.
func quantile(x []float64, q float64) float64 {
	h := float64(len(x)-1) * q
	i := min(int(h), len(x)-1)
	if i+1 == len(x) {
		return x[i]
	}
	return x[i] + (h-float64(i))*(x[i+1]-x[i])
}
