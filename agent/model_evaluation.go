package agent

import (
	"fmt"

	"github.com/fedmesh/fedmesh/agent/fetch"
	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/evaluation"
	"github.com/fedmesh/fedmesh/wire"
)

// evaluationState is what the owner knows of the base model that it is asked to evaluate on the rows that are held out.
type evaluationState struct {
	requestedModel    announcedModel // zero = none
	minHeldOutRows    uint32
	busy              bool            // a job evaluates it
	lastResult        wire.Evaluation // of the last one
	resultPending     bool            // the next hello says it
	resultInLastHello bool            // the last hello has said it
}

// askedToEvaluate takes note of what an announcement that is obeyed asks for.
func (a *Agent) askedToEvaluate(e round.AnnouncementReceived) {
	v, ann := &a.evaluating, &e.Announcement
	switch asks := ann.MinEvaluationRows > 0 && ann.Kind == wire.KindTraining && ann.BaseModel.Present(); {
	case !asks:
		v.requestedModel = announcedModel{}
	case v.lastResult.IsFor(e.Position.Run, ann.BaseModelVersion): // the coordinator has not heard, or forgotten it
		v.requestedModel = announcedModel{}
		a.tellEvaluation()
	default:
		v.requestedModel, v.minHeldOutRows = announcedModelOf(&e), ann.MinEvaluationRows
		a.startEvaluation()
	}
}

// startEvaluation evaluates the requested model as soon as the held-out rows are available. It uses the copy of
// training or predictions if there is one, and pulls the model otherwise.
func (a *Agent) startEvaluation() {
	v, p, l := &a.evaluating, a.taskData.Prepared(), a.taskData.Announced()
	hash := v.requestedModel.ref.Hash
	if !v.requestedModel.ref.Present() || v.busy || l == nil || l.CompiledTask == nil ||
		l.Hash != v.requestedModel.task {
		return
	}
	if p == nil || p.LocalTask != l || !a.taskData.Fits() ||
		!p.RowsHiddenInTrainer() && (p.HeldOutRows == nil || p.HeldOutRows.Len() < int(v.minHeldOutRows)) {
		a.storeEvaluation(wire.Evaluation{Run: v.requestedModel.run, Version: v.requestedModel.version})
		return
	}
	switch {
	case a.base != nil && a.baseModelHash == hash:
		a.startEvaluationJob(hash, a.base)
	case a.baseFromModelInUse(hash) != nil:
		a.startEvaluationJob(hash, a.baseFromModelInUse(hash))
	default:
		if underway, is := a.fetch.Underway(fetch.Model); (!is || underway != hash) && !a.budget.Spent() {
			a.fetchModel(v.requestedModel.ref)
		}
	}
}

// startEvaluationJob has a model that is here evaluated beside the owner, if it is the one that is asked for.
func (a *Agent) startEvaluationJob(hash wire.Digest, w []float32) {
	v, p := &a.evaluating, a.taskData.Prepared()
	if hash != v.requestedModel.ref.Hash || v.busy || p == nil || p.LocalTask != a.taskData.Announced() ||
		!p.RowsHiddenInTrainer() && p.HeldOutRows == nil || p.Hash != v.requestedModel.task {
		return
	}
	of, least := v.requestedModel, v.minHeldOutRows
	w = a.predictionParameters(p.CompiledTask, of.run, w) // where it has a model of its own, that is evaluated
	v.busy = true
	a.models.jobs.Do(func() {
		said, err := a.computeEvaluation(p, of, w)
		a.owner.RunOnLoop(func() {
			v.busy = false
			event := Evaluated{Version: of.version, Rows: int(said.Rows), Risk: said.Risk / float64(said.Rows),
				Err: err}
			if err != nil || said.Rows < least {
				said, event.Rows, event.Risk = wire.Evaluation{Run: of.run, Version: of.version}, 0, 0
			}
			if err != nil || event.Rows > 0 || !p.RowsHiddenInTrainer() {
				a.cfg.Observer.Observe(event)
			}
			// else another one is asked for by now
			if v.requestedModel.ref.Hash == of.ref.Hash && v.requestedModel.run == of.run &&
				v.requestedModel.version == of.version {
				a.storeEvaluation(said)
			}
			a.startEvaluation()
		})
	})
}

// computeEvaluation evaluates a model, beside the owner.
func (a *Agent) computeEvaluation(p *part.PreparedTask, of announcedModel, w []float32) (wire.Evaluation, error) {
	if p.RowsHiddenInTrainer() {
		by, err := a.opaqueTrainer()
		if err != nil || w == nil {
			return wire.Evaluation{}, err
		}
		f, err := by.Evaluate(a.owner.Context(), p.CompiledTask, w)
		said := evaluation.FromExternalProgram(of.run, of.version, f.Rows, f.Risk, f.Others)
		if err == nil && f.Rows > 0 && said.Rows == 0 {
			err = fmt.Errorf("a risk of %v over %d rows cannot be told", f.Risk, f.Rows)
		}
		return said, err
	}
	m, err := learner.NewModel[float32](p.CompiledTask.Model.Architecture()) // training uses another one meanwhile
	if err != nil {
		return wire.Evaluation{}, err
	}
	m.SetReportUnits(p.CompiledTask.Standardization())
	t := m.SumScores(w, p.HeldOutRows)
	return evaluation.FromScoreSums(of.run, of.version, t), p.View.Err()
}

// storeEvaluation has the next hello say what has come of the model that is asked for.
func (a *Agent) storeEvaluation(said wire.Evaluation) {
	a.evaluating.lastResult, a.evaluating.requestedModel = said, announcedModel{}
	a.tellEvaluation()
}

func (a *Agent) tellEvaluation() {
	a.evaluating.resultPending, a.evaluating.resultInLastHello = true, false
	a.stepRoundMachine(round.EvaluationDone{})
}

// evaluationForHello is what a hello says of a model that was evaluated, until a hello that does is answered.
func (a *Agent) evaluationForHello() wire.Evaluation {
	if !a.evaluating.resultPending {
		return wire.Evaluation{}
	}
	a.evaluating.resultInLastHello = true
	return a.evaluating.lastResult
}

// evaluationAcknowledged takes note of an answer to a hello.
func (a *Agent) evaluationAcknowledged() {
	if a.evaluating.resultInLastHello {
		a.evaluating.resultPending, a.evaluating.resultInLastHello = false, false
	}
}

// Evaluated: the agent has evaluated a base model on the held-out rows, as the coordinator has asked.
type Evaluated struct {
	Version wire.ModelVersion
	Rows    int     // that are reported; 0 = the risk is too large to be reported
	Risk    float64 // mean, without the ridge
	Err     error   // rows that could not be read: nothing is reported
}

// Describe implements observe.Event. The coordinator counts the results of all agents.
func (e Evaluated) Describe(d *observe.Description) {
	switch {
	case e.Err != nil:
		d.Log(observe.Warn, "cannot evaluate a model", "version", e.Version, "err", e.Err)
	case e.Rows == 0:
		d.Log(observe.Warn, "model evaluated, but its risk is too large to be reported", "version", e.Version)
	default:
		d.Log(observe.Info, "model evaluated on held-out rows", "version", e.Version, "rows", e.Rows,
			"risk", observe.Rounded(e.Risk))
	}
}
