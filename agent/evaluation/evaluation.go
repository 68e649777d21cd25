// Package evaluation evaluates base models on the rows that the device holds out, as the coordinator asks for it.
package evaluation

import (
	"context"
	"fmt"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/round/evaluation"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// ProgramScore is how well a model does on the rows of an external program.
type ProgramScore struct {
	Rows              int                // 0 = the program holds out no rows
	Risk              float64            // mean over the rows
	OtherMetricByName map[string]float64 // other metrics by name, each a mean over the rows
}

// EvaluatingProgram is an external program that evaluates models on rows that only it knows.
type EvaluatingProgram interface {
	// EvaluateRequestedModel scores a model on rows that are not trained on. It may wait for the local steps of a
	// block.
	Evaluate(ctx context.Context, p *task.CompiledTask[float32], model []float32) (ProgramScore, error)
}

// PartDependencies are the functions of the agent that the part calls. All are called on the owner's goroutine, except
// Program.
type PartDependencies struct {
	Tasks part.LocalTaskProvider
	// ModelInMemory returns a base model that the agent has in memory, or nil.
	ModelInMemory func(hash wire.Digest) []float32
	// FetchModel fetches a base model. ModelArrived is called when it is here.
	FetchModel func(ref wire.BlobRef)
	// ModelBeingFetched returns the hash of the base model that is being fetched. It is not ok if none is.
	ModelBeingFetched func() (hash wire.Digest, ok bool)
	// PredictionParameters returns the parameters with which the device predicts, given a base model of a run. They
	// include personal parameters if the task has any; it returns nil if the device has none yet.
	PredictionParameters func(p *task.CompiledTask[float32], run wire.RunID, base []float32) []float32
	// Program returns the external program that trains tasks whose rows only it knows.
	Program func() (EvaluatingProgram, error)
}

// Part is the part of an agent that evaluates base models.
type Part struct {
	core         *part.AgentCore
	dependencies PartDependencies

	requested     evaluationRequest
	busy          bool            // a job evaluates a model
	lastResult    wire.Evaluation // of the last model
	resultPending bool            // the next hello reports the result
	resultInHello bool            // the last hello has reported it
}

// evaluationRequest is what the coordinator asks for.
type evaluationRequest struct {
	ref     wire.BlobRef // zero = nothing is asked for
	task    wire.Digest
	run     wire.RunID
	version wire.ModelVersion
	minRows uint32
}

// New makes the part.
func New(core *part.AgentCore, hooks PartDependencies) *Part {
	return &Part{core: core, dependencies: hooks}
}

// FollowAnnouncement implements part.AnnouncementFollower.
func (p *Part) FollowAnnouncement(e agentround.AnnouncementReceived) {
	a := &e.Announcement
	switch asks := a.MinEvaluationRows > 0 && a.Kind == wire.KindTraining && a.BaseModel.IsSet(); {
	case !asks:
		p.requested = evaluationRequest{}
	case p.lastResult.IsFor(e.Position.Run, a.BaseModelVersion): // the coordinator has not received it, or has lost it
		p.requested = evaluationRequest{}
		p.reportResult()
	default:
		p.requested = evaluationRequest{a.BaseModel, a.Task.Hash, e.Position.Run, a.BaseModelVersion,
			a.MinEvaluationRows}
		p.EvaluateRequestedModel()
	}
}

// EvaluateRequestedModel evaluates the requested model if the held-out rows are available. It uses the copy in memory,
// or fetches the model. It is called again when the announced task or its rows have changed.
func (p *Part) EvaluateRequestedModel() {
	r, t, l := &p.requested, p.dependencies.Tasks.LastPreparedTask(), p.dependencies.Tasks.AnnouncedTask()
	if !r.ref.IsSet() || p.busy || l == nil || l.CompiledTask == nil || l.Hash != r.task {
		return
	}
	if t == nil || t.LocalTask != l || !p.dependencies.Tasks.RowsFitTask() ||
		!t.RowsHiddenInTrainer() && (t.HeldOutRows == nil || t.HeldOutRows.Len() < int(r.minRows)) {
		p.finishRequest(wire.Evaluation{Run: r.run, Version: r.version})
		return
	}
	if w := p.dependencies.ModelInMemory(r.ref.Hash); w != nil {
		p.ModelArrived(r.ref.Hash, w)
		return
	}
	if underway,
		is := p.dependencies.ModelBeingFetched(); (!is || underway != r.ref.Hash) && !p.core.IsUplinkBudgetSpent() {
		p.dependencies.FetchModel(r.ref)
	}
}

// NeedsModel reports whether the coordinator asks for an evaluation of the model.
func (p *Part) NeedsModel(hash wire.Digest) bool { return p.requested.ref.Hash == hash }

// ModelArrived evaluates a base model beside the owner if it is the requested one.
func (p *Part) ModelArrived(hash wire.Digest, w []float32) {
	t := p.dependencies.Tasks.LastPreparedTask()
	if hash != p.requested.ref.Hash || p.busy || t == nil || t.LocalTask != p.dependencies.Tasks.AnnouncedTask() ||
		!t.RowsHiddenInTrainer() && t.HeldOutRows == nil || t.Hash != p.requested.task {
		return
	}
	r := p.requested
	w = p.dependencies.PredictionParameters(t.CompiledTask, r.run, w)
	p.busy = true
	p.core.ModelJobs.Enqueue(func() {
		result, err := p.scoreModel(t, r, w)
		p.core.Loop.RunOnLoop(func() {
			p.busy = false
			event := ModelEvaluated{Version: r.version, Rows: int(result.Rows),
				Risk: result.RiskSum / float64(result.Rows),
				Err:  err}
			if err != nil || result.Rows < r.minRows {
				result, event.Rows, event.Risk = wire.Evaluation{Run: r.run, Version: r.version}, 0, 0
			}
			if err != nil || event.Rows > 0 || !t.RowsHiddenInTrainer() {
				p.core.Observer.Observe(event)
			}
			// otherwise another model is requested by now
			if now := &p.requested; now.ref.Hash == r.ref.Hash && now.run == r.run && now.version == r.version {
				p.finishRequest(result)
			}
			p.EvaluateRequestedModel()
		})
	})
}

// scoreModel evaluates a model, beside the owner.
func (p *Part) scoreModel(t *part.PreparedTask, r evaluationRequest, w []float32) (wire.Evaluation, error) {
	if t.RowsHiddenInTrainer() {
		program, err := p.dependencies.Program()
		if err != nil || w == nil {
			return wire.Evaluation{}, err
		}
		m, err := program.Evaluate(p.core.Loop.Context(), t.CompiledTask, w)
		result := evaluation.FromExternalProgram(r.run, r.version, m.Rows, m.Risk, m.OtherMetricByName)
		if err == nil && m.Rows > 0 && result.Rows == 0 {
			err = fmt.Errorf("a risk of %v over %d rows cannot be told", m.Risk, m.Rows)
		}
		return result, err
	}
	m, err := learner.NewModel[float32](t.CompiledTask.Model.Architecture()) // training uses another one meanwhile
	if err != nil {
		return wire.Evaluation{}, err
	}
	m.SetReportUnits(t.CompiledTask.Standardization())
	sums := m.SumScores(w, t.HeldOutRows)
	return evaluation.FromScoreSums(r.run, r.version, sums), t.View.Err()
}

// finishRequest has the next hello report the result for the requested model.
func (p *Part) finishRequest(result wire.Evaluation) {
	p.lastResult, p.requested = result, evaluationRequest{}
	p.reportResult()
}

func (p *Part) reportResult() {
	p.resultPending, p.resultInHello = true, false
	p.core.HandleRoundEvent(agentround.EvaluationDone{})
}

// FillHello implements part.HelloFiller. Hellos report a result until one of them is answered.
func (p *Part) FillHello(h *wire.Hello) {
	if p.resultPending {
		p.resultInHello = true
		h.Evaluation = p.lastResult
	}
}

// HelloAnswered is called when the coordinator has answered a hello.
func (p *Part) HelloAnswered() {
	if p.resultInHello {
		p.resultPending, p.resultInHello = false, false
	}
}

// NeedsLink implements part.LinkNeedReporter.
func (p *Part) NeedsLink() bool { return p.busy }

// ModelEvaluated: the agent has evaluated a base model on the held-out rows, as the coordinator has asked.
type ModelEvaluated struct {
	Version wire.ModelVersion
	Rows    int     // number of rows that are reported; 0 = the risk is too large to be reported
	Risk    float64 // mean over the rows, without the ridge
	Err     error   // why rows could not be read; nothing is reported then
}

// Describe implements observe.Event. The coordinator counts the results of all agents.
func (e ModelEvaluated) Describe(d *observe.EventDescription) {
	switch {
	case e.Err != nil:
		d.Log(observe.Warn, "cannot evaluate a model", "version", e.Version, "err", e.Err)
	case e.Rows == 0:
		d.Log(observe.Warn, "model evaluated, but its risk is too large to be reported", "version", e.Version)
	default:
		d.Log(observe.Info, "model evaluated on held-out rows", "version", e.Version, "rows", e.Rows,
			"risk", observe.RoundToFourDigits(e.Risk))
	}
}
