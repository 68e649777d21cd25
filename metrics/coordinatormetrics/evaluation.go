package coordinatormetrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/round/evaluation"
)

// evaluationMetrics has the metrics of the last evaluation on agents' held-out rows.
type evaluationMetrics struct {
	version, agents, rows, risk, r2, accuracy, f1 metrics.OptionalGauge
	agentRisk, agentAccuracy                      *prometheus.GaugeVec // by stat
	f1ByClass                                     *prometheus.GaugeVec // by class
	residualQuantiles                             *prometheus.GaugeVec // by share
}

func newEvaluated(r metrics.Registrar) evaluationMetrics {
	return evaluationMetrics{
		version: r.OptionalGauge("evaluation_version",
			"Version of the model that agents have evaluated last, on the rows "+
				"that they hold out: see round.evaluation."),
		agents: r.OptionalGauge("evaluation_agents", "Agents that have evaluated it."),
		rows:   r.OptionalGauge("evaluation_rows", "Rows on which they have."),
		risk:   r.OptionalGauge("evaluation_risk", "Its mean risk on all these rows, without the ridge."),
		r2: r.OptionalGauge("evaluation_r2",
			"Its coefficient of determination on all these rows, in regression."),
		accuracy: r.OptionalGauge("evaluation_accuracy_ratio", "Share of all these rows that it classifies rightly."),
		f1: r.OptionalGauge("evaluation_f1_ratio",
			"Mean of its F1 over the classes that occur among these rows, or are "+
				"predicted."),
		agentRisk: r.Gauges("evaluation_agent_risk", "Its risk at one agent: the mean over agents, the worst, or a "+
			"quantile. Absent for fewer than 5 agents.", "stat"),
		agentAccuracy: r.Gauges("evaluation_agent_accuracy_ratio", "Its accuracy at one agent: the mean over agents, "+
			"the worst, or a quantile. Absent for fewer than 5 agents.", "stat"),
		f1ByClass: r.Gauges("evaluation_class_f1_ratio", "Its F1 in each class, for up to 64 of them.", "class"),
		residualQuantiles: r.Gauges("evaluation_residual_size",
			"Size that a share of the residuals on all these rows does not "+
				"exceed, in the units of the target, at most 19 % too large.", "share"),
	}
}

func (e *evaluationMetrics) observe(f coordinator.ModelEvaluated) {
	r := &f.Result
	e.version.Set(float64(f.Version))
	e.agents.Set(float64(r.ReportingAgents))
	e.rows.Set(float64(r.Rows))
	for _, v := range []*prometheus.GaugeVec{e.agentRisk, e.agentAccuracy, e.f1ByClass, e.residualQuantiles} {
		v.Reset()
	}
	known := &r.Risk
	if r.ReportingAgents == 0 {
		known = nil
	}
	for m, x := range map[metrics.OptionalGauge]*float64{e.risk: known, e.r2: r.R2, e.accuracy: r.Accuracy,
		e.f1: r.F1} {
		m.Vec.Reset()
		if x != nil {
			m.Set(*x)
		}
	}
	setSpread(e.agentRisk, r.AgentRisk)
	setSpread(e.agentAccuracy, r.AgentAccuracy)
	for c, class := range r.Classes {
		if class.F1 != nil {
			e.f1ByClass.WithLabelValues(strconv.Itoa(c)).Set(*class.F1)
		}
	}
	for _, q := range r.ResidualQuantiles {
		e.residualQuantiles.WithLabelValues(strconv.FormatFloat(q.Share, 'g', -1, 64)).Set(q.MaxResidual)
	}
}

func setSpread(v *prometheus.GaugeVec, s *evaluation.AgentDistribution) {
	if s == nil {
		return
	}
	for stat, x := range map[string]float64{"mean": s.Mean, "worst": s.Worst, "q10": s.Q10, "q25": s.Q25,
		"q50": s.Q50, "q90": s.Q90} {
		v.WithLabelValues(stat).Set(x)
	}
}
