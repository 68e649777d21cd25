package training

import (
	"context"
	"errors"

	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// Trainer computes updates and statistics from the agent's data. LocalTrainer is the usual implementation, and
// experiments wrap it (lab/slow, lab/liar). The package internal/testkit/trainers contains the conformance tests for
// all trainers.
type Trainer interface {
	// NewBlock prepares the local steps of a block in round r. It must be fast, because the event loop may wait for it.
	// No step begins after ctx has ended. Between two steps the block calls j.ShouldStop, during which the device may
	// train for another federation.
	NewBlock(ctx context.Context, r wire.RoundID, p *task.CompiledTask[float32],
		j task.LocalJob[float32]) (LocalStepBlock,
		error)
	// Moments returns the agent's contribution to a statistics round (see [task.CompiledTask.StatisticsVector]).
	Moments(p *task.CompiledTask[float32], s *learner.Samples[float32]) ([]float64, error)
	// ReportedRowCount returns the number of rows that the agent reports to the coordinator.
	ReportedRowCount(s *learner.Samples[float32]) uint64
}

// LocalStepBlock takes the local steps of one block on a single goroutine. With mixing, neighbours change the
// parameters between two calls of TakeSteps.
type LocalStepBlock interface {
	// TakeSteps takes the local steps from first to last and updates x in place. Steps are numbered from 1.
	TakeSteps(x []float32, first, last uint64) error
	// OutcomeFromBase returns the change from base to the parameters x and resets the step count. Without mixing,
	// OutcomeFromBase may overwrite x.
	OutcomeFromBase(base, x []float32) (task.LocalOutcome[float32], error)
}

// ScoringBlock is a LocalStepBlock that can score models on its own rows.
type ScoringBlock interface {
	LocalStepBlock
	// Score returns the score of a model on held-out rows, or nil if there are no such rows. It is called after the
	// block's local steps. Unknown values in the score are NaN.
	Score(model []float32) (*learner.Score, error)
}

// OpaqueTrainer is a Trainer with its own rows and model, which the agent cannot read.
type OpaqueTrainer interface {
	Trainer
	// InitialPersonalParameters returns the initial values of the personal tensors.
	InitialPersonalParameters(ctx context.Context, p *task.CompiledTask[float32]) ([]float32, error)
}

// ErrNoProgram is the error if a task requires an OpaqueTrainer and the device has none.
var ErrNoProgram = errors.New("this device has no trainers: add trainers to agentd.yaml")

// TracedBlock is a LocalStepBlock that records its mixing steps for experiments in the laboratory.
type TracedBlock interface {
	LocalStepBlock
	Trace() d2d.ParameterTrace[float32]
	Ended(d2d.MixingStats) // called at the end of the block, even after an error
}

// LocalTrainer is the default Trainer. It takes local steps at full speed and reports exact values.
type LocalTrainer struct {
	// UsesRobustMoments replaces each outlier by the median of its column in the statistics (see
	// [learner.RobustColumnMoments]). If false, the statistics are exact.
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
