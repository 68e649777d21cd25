package training

import (
	"context"
	"errors"

	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// Trainer computes updates and statistics from the agent's data. Agents use a LocalTrainer. The laboratory wraps it to
// add delays (lab/slow) or lies (lab/liar), or to record its inputs. internal/testkit/trainers is the conformance suite
// of all trainers.
type Trainer interface {
	// NewBlock prepares the local steps of block r. It must be fast, since the event loop may wait for it. No step
	// begins after ctx has ended. Between two steps j.ShouldStop is called, in which the device may train for another
	// federation.
	NewBlock(ctx context.Context, r wire.RoundID, p *task.CompiledTask[float32],
		j task.LocalJob[float32]) (LocalStepBlock,
		error)
	// Moments returns the agent's part of a statistics round (see [task.CompiledTask.StatisticsVector]).
	Moments(p *task.CompiledTask[float32], s *learner.Samples[float32]) ([]float64, error)
	// ReportedRowCount returns the number of rows that the agent reports to the coordinator.
	ReportedRowCount(s *learner.Samples[float32]) uint64
}

// LocalStepBlock takes the local steps of one block. It is used from one goroutine. If the agent mixes, its neighbours
// change the parameters between two calls of TakeSteps.
type LocalStepBlock interface {
	// TakeSteps takes the local steps first to last, counted from 1, and updates x in place.
	TakeSteps(x []float32, first, last uint64) error
	// OutcomeFromBase returns the change from base to the parameters x and resets the step count. It may overwrite x
	// with the change if the agent does not mix.
	OutcomeFromBase(base, x []float32) (task.LocalOutcome[float32], error)
}

// ScoringBlock is a LocalStepBlock that scores models on its own rows.
type ScoringBlock interface {
	LocalStepBlock
	// Score scores a model on held-out rows, after the block's steps. It returns nil if no rows are held out. Unknown
	// values are NaN.
	Score(model []float32) (*learner.Score, error)
}

// OpaqueTrainer is a Trainer for tasks whose rows and model only it knows.
type OpaqueTrainer interface {
	Trainer
	// InitialPersonalParameters returns initial values of the agent's own tensors.
	InitialPersonalParameters(ctx context.Context, p *task.CompiledTask[float32]) ([]float32, error)
}

// ErrNoProgram is the error of a task that only an OpaqueTrainer can train.
var ErrNoProgram = errors.New("this device has no trainers: add trainers to agentd.yaml")

// TracedBlock is a LocalStepBlock that records its mixing, for the laboratory.
type TracedBlock interface {
	LocalStepBlock
	Trace() d2d.ParameterTrace[float32]
	Ended(d2d.MixingStats) // called at the end of the block, even after an error
}

// LocalTrainer takes local steps at full speed and reports true values.
type LocalTrainer struct {
	// UsesRobustMoments makes the statistics for standardisation robust: each outlier is replaced by the median of its
	// column (see [learner.RobustColumnMoments]). Otherwise they are exact.
	UsesRobustMoments bool
}

// Moments implements Trainer.
func (l LocalTrainer) Moments(p *task.CompiledTask[float32], s *learner.Samples[float32]) ([]float64, error) {
	if l.UsesRobustMoments {
		return p.RobustStatisticsVector(s)
	}
	return p.StatisticsVector(s)
}

// ReportedRowCount implements Trainer.
func (LocalTrainer) ReportedRowCount(s *learner.Samples[float32]) uint64 { return uint64(s.Len()) }

// NewBlock implements Trainer.
func (LocalTrainer) NewBlock(ctx context.Context, _ wire.RoundID, p *task.CompiledTask[float32],
	j task.LocalJob[float32]) (LocalStepBlock, error) {
	between := j.ShouldStop
	j.ShouldStop = func() bool { return between != nil && between() || ctx.Err() != nil }
	return p.NewTaskStepRunner(j)
}
