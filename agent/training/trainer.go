package training

import (
	"context"
	"errors"

	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// Trainer computes what leaves the device from the agent's data. Agents have a LocalTrainer. The laboratory decorates
// it: with delays (lab/slow), with lies (lab/liar), or to record its inputs. internal/testkit/trainers is the
// conformance suite of all trainers.
type Trainer interface {
	// NewBlock prepares the local steps of block r. It must be fast, since the owner may wait for it. No step begins
	// after the context has ended: then the round is over, or too little of its time is left. Between two steps j.Stop
	// is called, in which the device may train for another federation.
	NewBlock(ctx context.Context, r wire.RoundID, p *task.CompiledTask[float32],
		j task.LocalJob[float32]) (LocalStepBlock,
		error)
	// Moments returns the agent's part of a round of statistics, as [task.CompiledTask.StatisticsVector].
	Moments(p *task.CompiledTask[float32], s *learner.Samples[float32]) ([]float64, error)
	// ReportedRowCount returns the number of rows that the agent reports to the coordinator.
	ReportedRowCount(s *learner.Samples[float32]) uint64
}

// LocalStepBlock is the local steps of one block. It is used from one goroutine. If the agent mixes, its neighbours
// change the parameters between two calls of TakeSteps.
type LocalStepBlock interface {
	// TakeSteps takes local steps first to last, counted from 1, in place on x.
	TakeSteps(x []float32, first, last uint64) error
	// OutcomeFromBase returns the change of base to the parameters x, and counts the steps from 0 again. It may
	// overwrite x with the change if the agent does not mix.
	OutcomeFromBase(base, x []float32) (task.LocalOutcome[float32], error)
}

// ScoringBlock is a Block that scores models itself, on rows that only it knows.
type ScoringBlock interface {
	LocalStepBlock
	// Score scores a model on rows that are not trained on. It returns nil if there are none. Unknown values are NaN.
	// It is called after the block's steps.
	Score(model []float32) (*learner.Score, error)
}

// OpaqueTrainer is a Trainer of tasks whose rows and model only it knows.
type OpaqueTrainer interface {
	Trainer
	// InitialPersonalParameters returns initial values of the agent's own tensors.
	InitialPersonalParameters(ctx context.Context, p *task.CompiledTask[float32]) ([]float32, error)
}

// ErrNoProgram is the error of a task that only an OpaqueTrainer can train.
var ErrNoProgram = errors.New("this device has no trainers: add them to agentd.yaml")

// TracedBlock is a Block of the laboratory whose mixing is traced.
type TracedBlock interface {
	LocalStepBlock
	Trace() d2d.ParameterTrace[float32]
	Ended(d2d.MixingStats) // called at the end of the block, also after an error
}

// LocalTrainer takes local steps as fast as the device can, and reports true values.
type LocalTrainer struct {
	// UsesRobustMoments computes the statistics for the common standardisation with each outlier replaced by the median
	// of its column: see [learner.RobustColumnMoments]. Otherwise they are exact.
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
