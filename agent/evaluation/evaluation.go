// Package evaluation evaluates base models on the device's held-out rows at the coordinator's request.
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

// ModelScoreByProgram contains the quality metrics of a model, measured by an external program on its own rows.
type ModelScoreByProgram struct {
	Rows              int                // number of evaluated rows; 0 if the program holds out none
	Risk              float64            // mean risk (loss) of the model over the rows
	OtherMetricByName map[string]float64 // other metrics by name, each a mean over the rows
}

// EvaluatingProgram is an external program that evaluates models on its own rows.
type EvaluatingProgram interface {
	// Evaluate measures a model on the program's held-out rows. The call may block until running local steps have
	// ended.
	Evaluate(ctx context.Context, p *task.CompiledTask[float32], model []float32) (ModelScoreByProgram, error)
}

// EvaluatorDependencies contains the agent's callbacks for the evaluator. All except FindProgram are called on the
// event loop.
type EvaluatorDependencies struct {
	Tasks part.LocalTaskProvider
	// FindModelInMemory returns the base model with this hash if it is in memory, and nil otherwise.
	FindModelInMemory func(hash wire.Digest) []float32
	// FetchModel starts fetching a base model. EvaluateArrivedModel is called after the model has arrived.
	FetchModel func(ref wire.BlobRef)
	// FindModelBeingFetched returns the hash of the base model that is being fetched. ok is false if there is none.
	FindModelBeingFetched func() (hash wire.Digest, ok bool)
	// BuildPredictionParameters returns the parameters for predictions from a base model of a run, including personal
	// parameters if the task has any. It returns nil if the device has none yet.
	BuildPredictionParameters func(p *task.CompiledTask[float32], run wire.RunID, base []float32) []float32
	// FindProgram returns the external program. It is used for tasks whose rows only that program can read.
	FindProgram func() (EvaluatingProgram, error)
}

// ModelEvaluator is the part of an agent that evaluates base models.
type ModelEvaluator struct {
	core         *part.AgentCore
	dependencies EvaluatorDependencies

	pendingRequest       evaluationRequest
	isEvaluating         bool            // true while a job evaluates a model
	lastResult           wire.Evaluation // result of the last evaluation of a model
	mustReportResult     bool            // true if the next hello message must contain lastResult
	wasResultInLastHello bool            // true if the last hello message contained lastResult
}

// evaluationRequest is a request of the coordinator to evaluate a model.
type evaluationRequest struct {
	baseModel  wire.BlobRef // model to evaluate; zero if there is no request
	taskDigest wire.Digest
	run        wire.RunID
	version    wire.ModelVersion
	minRows    uint32
}

// New returns a ModelEvaluator.
func New(core *part.AgentCore, hooks EvaluatorDependencies) *ModelEvaluator {
	return &ModelEvaluator{core: core, dependencies: hooks}
}

// FollowAnnouncement implements part.AnnouncementFollower.
func (p *ModelEvaluator) FollowAnnouncement(e agentround.AnnouncementReceived) {
	a := &e.Announcement
	switch asks := a.MinEvaluationRows > 0 && a.Kind == wire.KindTraining && a.BaseModel.IsSet(); {
	case !asks:
		p.pendingRequest = evaluationRequest{}
	// The coordinator requests the evaluation again, so it has not received the result.
	case p.lastResult.IsForModel(e.Position.Run, a.BaseModelVersion):
		p.pendingRequest = evaluationRequest{}
		p.queueResultForHello()
	default:
		p.pendingRequest = evaluationRequest{a.BaseModel, a.Task.Hash, e.Position.Run, a.BaseModelVersion,
			a.MinEvaluationRows}
		p.EvaluateRequestedModel()
	}
}

// EvaluateRequestedModel evaluates the requested model if the held-out rows are available. It uses the model in memory,
// or fetches it. It is called again when the announced task or its rows have changed.
func (p *ModelEvaluator) EvaluateRequestedModel() {
	r, t, l := &p.pendingRequest, p.dependencies.Tasks.LastPreparedTask(), p.dependencies.Tasks.AnnouncedTask()
	if !r.baseModel.IsSet() || p.isEvaluating || l == nil || l.CompiledTask == nil || l.Hash != r.taskDigest {
		return
	}
	if t == nil || t.LocalTask != l || !p.dependencies.Tasks.RowsFitTask() ||
		!t.AreRowsHiddenInTrainer() && (t.HeldOutRows == nil || t.HeldOutRows.Len() < int(r.minRows)) {
		p.finishEvaluationRequest(wire.Evaluation{Run: r.run, ModelVersion: r.version})
		return
	}
	if w := p.dependencies.FindModelInMemory(r.baseModel.Hash); w != nil {
		p.EvaluateArrivedModel(r.baseModel.Hash, w)
		return
	}
	if underway,
		is := p.dependencies.FindModelBeingFetched(); (!is || underway != r.baseModel.Hash) &&
		!p.core.IsUplinkBudgetSpent() {
		p.dependencies.FetchModel(r.baseModel)
	}
}

// NeedsModel reports whether the coordinator has requested an evaluation of the model.
func (p *ModelEvaluator) NeedsModel(hash wire.Digest) bool {
	return p.pendingRequest.baseModel.Hash == hash
}

// EvaluateArrivedModel evaluates a base model in a background job if it is the requested one.
func (p *ModelEvaluator) EvaluateArrivedModel(hash wire.Digest, w []float32) {
	t := p.dependencies.Tasks.LastPreparedTask()
	if hash != p.pendingRequest.baseModel.Hash || p.isEvaluating || t == nil ||
		t.LocalTask != p.dependencies.Tasks.AnnouncedTask() ||
		!t.AreRowsHiddenInTrainer() && t.HeldOutRows == nil || t.Hash != p.pendingRequest.taskDigest {
		return
	}
	r := p.pendingRequest
	w = p.dependencies.BuildPredictionParameters(t.CompiledTask, r.run, w)
	p.isEvaluating = true
	p.core.ModelJobs.Enqueue(func() {
		result, err := p.scoreModel(t, r, w)
		p.core.Loop.RunOnLoop(func() {
			p.isEvaluating = false
			event := ModelEvaluated{Version: r.version, Rows: int(result.Rows),
				Risk: result.RiskSum / float64(result.Rows),
				Err:  err}
			if err != nil || result.Rows < r.minRows {
				result, event.Rows, event.Risk = wire.Evaluation{Run: r.run, ModelVersion: r.version}, 0, 0
			}
			if err != nil || event.Rows > 0 || !t.AreRowsHiddenInTrainer() {
				p.core.Observer.Observe(event)
			}
			// Skip the result if the coordinator has requested the evaluation of another model in the meantime.
			if now := &p.pendingRequest; now.baseModel.Hash == r.baseModel.Hash && now.run == r.run &&
				now.version == r.version {
				p.finishEvaluationRequest(result)
			}
			p.EvaluateRequestedModel()
		})
	})
}

// scoreModel evaluates a model. It runs in a background job.
func (p *ModelEvaluator) scoreModel(t *part.PreparedTask, r evaluationRequest, w []float32) (wire.Evaluation, error) {
	if t.AreRowsHiddenInTrainer() {
		program, err := p.dependencies.FindProgram()
		if err != nil || w == nil {
			return wire.Evaluation{}, err
		}
		m, err := program.Evaluate(p.core.Loop.Context(), t.CompiledTask, w)
		result := evaluation.FromExternalProgram(r.run, r.version, m.Rows, m.Risk, m.OtherMetricByName)
		if err == nil && m.Rows > 0 && result.Rows == 0 {
			err = fmt.Errorf("the model's risk (mean loss) of %v over %d rows is not finite or is too large to report",
				m.Risk, m.Rows)
		}
		return result, err
	}
	// Use a separate model instance, because training may run concurrently.
	m, err := learner.NewModel[float32](t.CompiledTask.Model.Architecture())
	if err != nil {
		return wire.Evaluation{}, err
	}
	m.SetReportedRiskUnits(t.CompiledTask.Standardization())
	sums := m.SumScores(w, t.HeldOutRows)
	return evaluation.FromScoreSums(r.run, r.version, sums), t.View.Err()
}

// finishEvaluationRequest stores the result for the requested model and reports it in the next hello.
func (p *ModelEvaluator) finishEvaluationRequest(result wire.Evaluation) {
	p.lastResult, p.pendingRequest = result, evaluationRequest{}
	p.queueResultForHello()
}

func (p *ModelEvaluator) queueResultForHello() {
	p.mustReportResult, p.wasResultInLastHello = true, false
	p.core.HandleRoundEvent(agentround.EvaluationDone{})
}

// FillHello implements part.HelloFiller. It includes the evaluation result in each hello message until the coordinator
// has answered a message with the result.
func (p *ModelEvaluator) FillHello(h *wire.Hello) {
	if p.mustReportResult {
		p.wasResultInLastHello = true
		h.Evaluation = p.lastResult
	}
}

// RecordHelloAnswered records that the coordinator has answered a hello.
func (p *ModelEvaluator) RecordHelloAnswered() {
	if p.wasResultInLastHello {
		p.mustReportResult, p.wasResultInLastHello = false, false
	}
}

// NeedsLink implements part.LinkNeedReporter.
func (p *ModelEvaluator) NeedsLink() bool { return p.isEvaluating }

// ModelEvaluated reports that the agent has evaluated a base model on held-out rows at the coordinator's request.
type ModelEvaluated struct {
	Version wire.ModelVersion
	Rows    int     // number of evaluated rows; 0 means that the risk is too large to report
	Risk    float64 // mean risk over the rows, without the L2 penalty (ridge)
	Err     error   // error while reading the rows; if set, no result is reported
}

// Describe implements observe.Event. It updates no metric, because the coordinator counts the results of all agents.
func (e ModelEvaluated) Describe(d *observe.EventDescription) {
	switch {
	case e.Err != nil:
		d.Log(observe.Warn, "model evaluation failed", "version", e.Version, "err", e.Err)
	case e.Rows == 0:
		d.Log(observe.Warn, "model evaluated, but the model's risk (mean loss) is too large to report",
			"version", e.Version)
	default:
		d.Log(observe.Info, "model evaluated on held-out rows", "version", e.Version, "rows", e.Rows,
			"risk", observe.RoundToFourDigits(e.Risk))
	}
}
