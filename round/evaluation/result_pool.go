// Package evaluation combines the agents' evaluations of a model on their held-out rows into one result: over all rows,
// over agents, and by class. Both the coordinator and the simulator use the package.
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

// MinAgentsForDistribution is the minimum number of agents for statistics over agents. With fewer agents, the result
// contains only sums over all rows, since other numbers could reveal the data of a single agent.
const MinAgentsForDistribution = 5

// These declarations compile only if the arrays in packages wire and learner have the same size.
var (
	_ [learner.ResidualBins]uint32        = [wire.ResidualHistogramBins]uint32{}
	_ [learner.MaxConfusionClasses]uint32 = [wire.MaxConfusionClasses]uint32{}
)

// FromScoreSums converts the score sums of a model to the evaluation message of an agent. If one of the sums is not
// finite or out of range, the message contains no rows.
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

// FromExternalProgram converts the metrics of an external model program, which are means over the held-out rows, to an
// evaluation message. It omits invalid metrics. If there are too many metrics, it omits the last ones in the order of
// names.
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

// ResultPool collects the agents' evaluations of one model. The zero value is ready to use.
type ResultPool struct {
	agentEvaluations []agentEvaluation
	residualCounts   []uint64
	confusionCounts  []uint64
	isClassification bool
	isExternalModel  bool // whether the model is trained by an external program
}

// agentEvaluation contains the evaluation that one agent sent.
type agentEvaluation struct {
	agent wire.AgentID
	wire.Evaluation
}

// FitsModelKind reports whether the fields of an evaluation match the kind of the model: an external model, a
// classification with the given number of classes, or a regression (0 classes).
func FitsModelKind(m *wire.Evaluation, external bool, classes int) bool {
	switch {
	case m.Rows == 0:
		return true
	case external != (m.ExternalMetrics != nil):
		return false
	case external:
		return true // An external evaluation has no further fields to check.
	case classes == 0:
		return len(m.ResidualHistogram) == learner.ResidualBins && len(m.ConfusionMatrix) == 0 && m.CorrectRows == 0
	case classes > learner.MaxConfusionClasses:
		return len(m.ResidualHistogram) == 0 && len(m.ConfusionMatrix) == 0
	}
	return len(m.ResidualHistogram) == 0 && len(m.ConfusionMatrix) == classes*classes
}

// Add adds an agent's evaluation. All evaluations in a pool must belong to one model and have the same kind. The
// evaluation of an agent may be added only once.
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

// Result is the combined result of an evaluation.
type Result struct {
	ReportingAgents int     `json:"agents"` // number of agents with enough held-out rows
	Rows            uint64  `json:"rows"`
	Risk            float64 `json:"risk"` // mean loss over all rows, without the regularisation term
	// R2 is the R² score over all rows, for a regression. It is nil if all targets are equal. ResidualCounts contains
	// the number of residuals in each histogram bin that docs/PROTOCOL.md defines.
	R2                *float64           `json:"r2,omitempty"`
	ResidualCounts    []uint64           `json:"residuals,omitempty"`
	ResidualQuantiles []ResidualQuantile `json:"residuals_within,omitempty"`
	// Accuracy is the share of correctly classified rows. MacroF1 is the mean F1 score of the classes for which F1 is
	// defined.
	Accuracy        *float64       `json:"accuracy,omitempty"`
	MacroF1         *float64       `json:"f1,omitempty"`
	Classes         []ClassMetrics `json:"classes,omitempty"`
	ConfusionMatrix [][]uint64     `json:"confusion,omitempty"` // number of rows by [actual][predicted] class
	// ExternalMetrics contains the metrics of external model programs by name, at most wire.MaxExternalMetrics. Each
	// value is the mean over the rows of the agents that reported the metric.
	ExternalMetrics map[string]float64 `json:"figures,omitempty"`
	// Distributions of the metrics over agents, in which each agent has the same weight. They are nil with fewer than
	// MinAgentsForDistribution agents.
	AgentRisk     *AgentMetricDistribution `json:"agent_risk,omitempty"`
	AgentAccuracy *AgentMetricDistribution `json:"agent_accuracy,omitempty"`
}

// ClassMetrics contains the results of one class over all rows.
type ClassMetrics struct {
	Rows        uint64 `json:"rows"`
	CorrectRows uint64 `json:"correct"`
	// F1 score of the class: 2·correct / (actual + predicted rows); nil if both numbers of rows are 0
	F1 *float64 `json:"f1,omitempty"`
}

// ResidualQuantile gives the largest absolute residual among the given share of the rows, in units of the target. The
// value is the upper end of a histogram bin, so it may be up to 19 % too large.
type ResidualQuantile struct {
	Share       float64 `json:"share"`
	MaxResidual float64 `json:"size"`
}

// AgentMetricDistribution describes the distribution of a metric over agents: mean, variance, worst value, and
// interpolated quantiles.
type AgentMetricDistribution struct {
	Mean     float64 `json:"mean"`
	Variance float64 `json:"variance"`
	Worst    float64 `json:"worst"`
	Q10      float64 `json:"q10"`
	Q25      float64 `json:"q25"`
	Q50      float64 `json:"q50"`
	Q90      float64 `json:"q90"`
}

// residualQuantileShares contains the shares of rows for which residual quantiles are reported.
var residualQuantileShares = []float64{0.5, 0.9, 0.99, 0.999}

// Summarize returns the combined result, which does not depend on the order of the calls to Add. unit is the scale of
// standardised targets, or 1 if the targets are not standardised.
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

// poolExternalMetrics combines the metrics of external programs. If all agents have reported an accuracy, it also
// writes each agent's accuracy to accuracies.
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
	// Sort metrics by the number of agents that report them, so that one agent that reports many metric names cannot
	// displace common metrics.
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

// FormatExternalMetrics formats the metrics of external programs for display. It omits the accuracy metric if
// r.Accuracy is set.
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

// accuracyMetricName is the name under which external programs report the accuracy.
const accuracyMetricName = "accuracy"

// fillConfusionAndClasses computes the confusion matrix and the metrics of each class from the counts of (actual,
// predicted) pairs.
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

// fillResidualQuantiles computes the quantiles of the absolute residuals from their histogram.
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

// newAgentMetricDistribution returns the distribution of a metric over agents. The worst value is the largest value, or
// the smallest value if bad is negative.
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

// quantile returns the q-quantile of the K sorted numbers x, by linear interpolation between the elements next to the
// position h = (K − 1)q.
func quantile(x []float64, q float64) float64 {
	h := float64(len(x)-1) * q
	i := min(int(h), len(x)-1)
	if i+1 == len(x) {
		return x[i]
	}
	return x[i] + (h-float64(i))*(x[i+1]-x[i])
}
