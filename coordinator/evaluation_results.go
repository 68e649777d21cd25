package coordinator

import (
	"fmt"
	"math"
	"strconv"

	"github.com/fedmesh/fedmesh/coordinator/devices"
	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/evaluation"
	"github.com/fedmesh/fedmesh/wire"
)

// handleEvaluationReport reports how well a model performs on the agents' held-out rows. If enough agents responded, it
// writes the result to the history.
func (c *Coordinator) handleEvaluationReport(e round.ReportEvaluation) {
	scale, t := 1.0, c.announcedTask
	if s := t.Standardization().Scale; len(s) > 0 && t.Model.Architecture().ClassCount() == 0 {
		scale = float64(s[len(s)-1]) // scale of the target column, which is the last
	}
	r := e.ResultPool.Summarize(scale)
	c.cfg.Observer.Observe(ModelEvaluated{Version: e.Version, RespondingAgents: e.RespondingAgents,
		PresentAgents: e.PresentAgents,
		TooFewAgents:  e.TooFewAgents, Result: r})
	if r.ReportingAgents > 0 {
		line := runs.HistoryEntry{Time: e.EndedAt, Run: e.Run, Round: e.Round, Kind: runs.KindEvaluation,
			Version:    e.Version,
			Evaluation: &r}
		c.folderWriter.enqueueWrite("append the evaluation to the run's history",
			func() error { return c.stateFolder.AppendEvaluationToHistory(line) })
	}
}

// stripMismatchedEvaluation removes the evaluation from an agent's hello if the evaluation does not match the kind of
// model in the task. It then returns an error.
func (c *Coordinator) stripMismatchedEvaluation(agent wire.AgentID, m *wire.Hello) error {
	t := c.announcedTask
	if evaluation.FitsModelKind(&m.Evaluation, t.Task.External.IsEnabled(), t.Model.Architecture().ClassCount()) {
		return nil
	}
	m.Evaluation = wire.Evaluation{}
	return host.NewMessageDropError(devices.DropMalformed,
		"the evaluation from %s has metrics for a different kind of model than the task's and is ignored",
		agent)
}

var (
	evaluatedVersion = observe.OptionalGauge("evaluation_version",
		"Version of the last model that agents evaluated (round.evaluation).")
	evaluatingAgents = observe.OptionalGauge("evaluation_agents", "Agents that evaluated the last evaluated model.")
	evaluatedRows    = observe.OptionalGauge("evaluation_rows",
		"Number of held-out rows of the agents in the last evaluation.")
	evaluatedRisk = observe.OptionalGauge("evaluation_risk",
		"Mean risk of the last evaluated model over all held-out rows of the agents, without the ridge.")
	evaluatedR2 = observe.OptionalGauge("evaluation_r2",
		"Coefficient of determination of the last evaluated model over all held-out rows of the agents. Only for "+
			"regression.")
	evaluatedAccuracy = observe.OptionalGauge("evaluation_accuracy_ratio",
		"Accuracy of the last evaluated model over all held-out rows of the agents.")
	evaluatedF1 = observe.OptionalGauge("evaluation_f1_ratio",
		"Macro F1 score of the last evaluated model, over the classes that occur or are predicted.")
	evaluatedAgentRisk = observe.OptionalGauge("evaluation_agent_risk",
		"Risk of the last evaluated model per agent: mean, worst and quantiles. Absent for fewer than 5 agents.",
		"stat")
	evaluatedAgentAccuracy = observe.OptionalGauge("evaluation_agent_accuracy_ratio",
		"Accuracy of the last evaluated model per agent: mean, worst and quantiles. Absent for fewer than 5 agents.",
		"stat")
	evaluatedClassF1 = observe.OptionalGauge("evaluation_class_f1_ratio",
		"F1 score of the last evaluated model by class, for at most 64 classes.", "class")
	evaluatedResiduals = observe.OptionalGauge("evaluation_residual_size",
		"Quantile of the absolute residuals of the last evaluated model, in the target's unit, rounded up by at most "+
			"19 %.",
		"share")
)

// ModelEvaluationValue is the name under which the status contains the latest *ModelEvaluation.
const ModelEvaluationValue = "evaluation"

// ModelEvaluation is the part of the status that describes how well a model performs on the agents' held-out rows.
type ModelEvaluation struct {
	Version wire.ModelVersion `json:"version"`
	evaluation.Result
}

// ModelEvaluated reports how well a model performs on the agents' held-out rows.
type ModelEvaluated struct {
	Version          wire.ModelVersion
	RespondingAgents int // number of responses, including agents with too few rows
	PresentAgents    int
	TooFewAgents     bool // fewer than round.evaluation.min_agents responded; Result is empty
	Result           evaluation.Result
}

// Describe implements observe.Event.
func (e ModelEvaluated) Describe(d *observe.EventDescription) {
	const condition = "evaluation"
	e.describeMetrics(d)
	if !e.TooFewAgents { // with too few agents, the previous result is kept
		d.ShowStatusValue(ModelEvaluationValue, &ModelEvaluation{e.Version, e.Result})
	}
	r := &e.Result
	switch {
	case e.TooFewAgents:
		d.Log(observe.Warn, "not enough agents evaluated the model", "version", e.Version,
			"agents", e.RespondingAgents, "present", e.PresentAgents)
		d.RaiseCondition(condition, fmt.Sprintf("not enough agents evaluated model %d: only %d of %d present agents "+
			"sent results",
			e.Version,
			e.RespondingAgents, e.PresentAgents), "lower round.evaluation.min_agents")
		return
	case r.ReportingAgents == 0:
		const problem = "no agent has enough held-out rows to evaluate a model"
		d.Log(observe.Warn, problem, "version", e.Version, "responding_agents", e.RespondingAgents)
		d.RaiseCondition(condition, problem,
			"set evaluation.held_out in agentd.yaml, or lower round.evaluation.min_rows in coordinator.yaml")
		return
	}
	attributes := []any{"version", e.Version, "agents", r.ReportingAgents, "present", e.PresentAgents, "rows", r.Rows,
		"risk", observe.RoundToFourDigits(r.Risk)}
	for _, x := range []struct {
		name  string
		value *float64
	}{{"r2", r.R2}, {"accuracy", r.Accuracy}, {"f1", r.MacroF1}} {
		if x.value != nil {
			attributes = append(attributes, x.name, observe.RoundToFourDigits(*x.value))
		}
	}
	if text := r.FormatExternalMetrics(); text != "" {
		attributes = append(attributes, "metrics", text)
	}
	d.Log(observe.Info, "model evaluated on the held-out rows of agents", attributes...)
	d.ResolveCondition(condition)
}

// describeMetrics sets the metrics of an evaluation and removes outdated series.
func (e ModelEvaluated) describeMetrics(d *observe.EventDescription) {
	r := &e.Result
	d.SetGauge(evaluatedVersion, float64(e.Version))
	d.SetGauge(evaluatingAgents, float64(r.ReportingAgents))
	d.SetGauge(evaluatedRows, float64(r.Rows))
	risk := math.NaN()
	if r.ReportingAgents > 0 {
		risk = r.Risk
	}
	d.SetGauge(evaluatedRisk, risk)
	d.SetGauge(evaluatedR2, valueOrNaN(r.R2))
	d.SetGauge(evaluatedAccuracy, valueOrNaN(r.Accuracy))
	d.SetGauge(evaluatedF1, valueOrNaN(r.MacroF1))
	setAgentDistributionMetric(d, evaluatedAgentRisk, r.AgentRisk)
	setAgentDistributionMetric(d, evaluatedAgentAccuracy, r.AgentAccuracy)
	d.ClearGauge(evaluatedClassF1)
	for c, class := range r.Classes {
		if class.F1 != nil {
			d.SetGauge(evaluatedClassF1, *class.F1, strconv.Itoa(c))
		}
	}
	d.ClearGauge(evaluatedResiduals)
	for _, q := range r.ResidualQuantiles {
		d.SetGauge(evaluatedResiduals, q.MaxResidual, strconv.FormatFloat(q.Share, 'g', -1, 64))
	}
}

func setAgentDistributionMetric(d *observe.EventDescription, m *observe.Metric, x *evaluation.AgentMetricDistribution) {
	d.ClearGauge(m)
	if x == nil {
		return
	}
	d.SetGauge(m, x.Mean, "mean")
	d.SetGauge(m, x.Worst, "worst")
	d.SetGauge(m, x.Q10, "q10")
	d.SetGauge(m, x.Q25, "q25")
	d.SetGauge(m, x.Q50, "q50")
	d.SetGauge(m, x.Q90, "q90")
}

func valueOrNaN(x *float64) float64 {
	if x == nil {
		return math.NaN()
	}
	return *x
}
