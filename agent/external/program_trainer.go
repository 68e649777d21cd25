package external

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/fedmesh/fedmesh/agent/evaluation"
	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// ProgramTrainer is the trainer and row source of a device with external programs. Tasks with an external model use a
// program, and all other tasks use the embedded Trainer and source.
type ProgramTrainer struct {
	training.Trainer
	data.Source
	programConfigByTrainer map[string]Config
	place                  programContext

	mu               sync.Mutex
	programByTrainer map[string]*program // external programs, by the trainer name in the configuration
}

// New returns a trainer that uses the given external programs, by trainer name. The context ctx must end with the
// agent, and observe must be safe for concurrent use.
func New(ctx context.Context, around training.Trainer, rows data.Source, programs map[string]Config,
	federation wire.FederationName, device wire.AgentID, log *slog.Logger,
	observe func(observe.Event)) *ProgramTrainer {
	return &ProgramTrainer{Trainer: around, Source: rows, programConfigByTrainer: programs,
		programByTrainer: map[string]*program{},
		place:            programContext{federation, device, log, observe, ctx}}
}

// OpenRows implements [data.Source]. It keeps the program of the same task running and stops the program of any other
// task.
func (t *ProgramTrainer) OpenRows(w data.RowQuery) data.QueriedRows {
	if w.ExternalTask == nil {
		return t.Source.OpenRows(w)
	}
	name := w.ExternalTask.External.TrainerName
	cfg, ok := t.programConfigByTrainer[name]
	if !ok {
		return untrainableRows{fmt.Errorf("the task requires trainer %q, which is not configured on this device: add "+
			"trainers.%s to agentd.yaml", name, name)}
	}
	layout, err := layoutOf(w.ExternalTask)
	if err != nil {
		return untrainableRows{err}
	}
	p := newProgram(name, cfg, &t.place, w.ExternalTask, layout)
	t.mu.Lock()
	before := t.programByTrainer[name]
	if before != nil && before.encodedTask == p.encodedTask {
		t.mu.Unlock()
		return before
	}
	t.programByTrainer[name] = p
	t.mu.Unlock()
	if before != nil {
		before.close()
	}
	return p
}

func layoutOf(t *wire.Task) ([]learner.TensorSpec, error) {
	p, err := task.Compile[float32](*t)
	if err != nil {
		return nil, err
	}
	return p.Model.Architecture().Layout(), nil
}

// Close implements [data.Source]. It stops all programs.
func (t *ProgramTrainer) Close() error {
	t.mu.Lock()
	all := t.programByTrainer
	t.programByTrainer = map[string]*program{}
	t.mu.Unlock()
	for _, p := range all {
		p.close()
	}
	return t.Source.Close()
}

// NoRowsSource is the row source of a device whose only trainers are external programs.
type NoRowsSource struct{}

// OpenRows implements [data.Source].
func (NoRowsSource) OpenRows(data.RowQuery) data.QueriedRows {
	return untrainableRows{errors.New("the device has trainers but no data source: add data to agentd.yaml")}
}

// Probe implements [data.Source].
func (NoRowsSource) Probe() error { return nil }

// Close implements [data.Source].
func (NoRowsSource) Close() error { return nil }

// untrainableRows is a row source for a task that this device cannot train. It returns the reason as an error.
type untrainableRows struct{ why error }

func (untrainableRows) Changed() bool                         { return false }
func (m untrainableRows) Snapshot() (data.RowSnapshot, error) { return data.RowSnapshot{}, m.why }

// Changed implements [data.Rows]. It requests the number of rows and restarts a program that has ended, and returns
// false if the program does not answer.
func (p *program) Changed() bool {
	p.mu.Lock()
	before := p.rowsVersion
	p.mu.Unlock()
	if before > 0 { // Before the first snapshot the program is not started yet.
		ctx, cancel := context.WithTimeout(p.context.ctx, p.cfg.SilenceTimeout)
		defer cancel()
		if err := p.updateRowCount(ctx); errors.As(err, new(*requestRefusedError)) {
			p.context.log.Warn("trainer did not report its number of training rows",
				"trainer", p.trainerName, "err", err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rowsVersion != p.lastSnapshotVersion || p.rowsVersion == 0
}

// Snapshot implements [data.Rows] and returns as many rows as the program has, without columns. It starts the program
// and waits at most for the program's timeout, because other readers of the agent wait, too.
func (p *program) Snapshot() (data.RowSnapshot, error) {
	ctx, cancel := context.WithTimeout(p.context.ctx, p.cfg.SilenceTimeout)
	defer cancel()
	if _, err := p.ensureProcess(ctx); err != nil {
		return data.RowSnapshot{}, fmt.Errorf("trainer %s: %w", p.trainerName, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastSnapshotVersion = p.rowsVersion
	return data.RowSnapshot{Version: p.rowsVersion, Rows: learner.NewTableSamples[float32](1, p.rowCount,
		hiddenRows{})}, nil
}

// hiddenRows is a table of rows whose content only the external program can read.
type hiddenRows struct{}

// ReadRows implements [learner.StoredTable].
func (hiddenRows) ReadRows(x, y []float32, _ int) {
	clear(x)
	clear(y)
}

// NewBlock implements [training.Trainer].
func (t *ProgramTrainer) NewBlock(ctx context.Context, r wire.RoundID, p *task.CompiledTask[float32],
	j task.LocalJob[float32]) (training.LocalStepBlock, error) {
	if !p.Task.External.IsEnabled() { // The device now has a task without an external model.
		t.mu.Lock()
		for _, needless := range t.programByTrainer {
			go needless.stopUntilNeeded()
		}
		t.mu.Unlock()
		return t.Trainer.NewBlock(ctx, r, p, j)
	}
	of, err := t.findProgramForTask(p)
	if err != nil {
		return nil, err
	}
	training := &p.Task.Training
	b := &programBlock{ctx: ctx, program: of, compiledTask: p, job: j, steps: uint64(j.Steps), stepWeight: j.StepWeight,
		fitTemplate: fitRequest{
			Round: fmt.Sprint(r), BatchSize: training.BatchSize, Seed: j.Rand.Uint64() >> 11,
			Proximal: training.Proximal, BlockSteps: uint64(j.Steps)}}
	if p.Task.Mixing.IntervalSteps > 0 {
		b.mixes, b.blockSteps = true, uint64(training.MaxLocalSteps)
		b.stepWeight *= float64(b.blockSteps) / float64(b.steps)
	} else if training.NormalizesStepSize {
		b.stepWeight /= float64(b.steps)
	}
	return b, nil
}

// programBlock is a block of local steps that a program takes.
type programBlock struct {
	ctx          context.Context
	program      *program
	run          *programRun // process that has begun the block; nil before the block's first step
	compiledTask *task.CompiledTask[float32]
	job          task.LocalJob[float32]
	mixes        bool
	blockSteps   uint64 // length H of a mixing block, in steps
	steps        uint64 // number E_k of local steps that this agent, agent k, takes per block
	stepWeight   float64
	fitTemplate  fitRequest // fields with the same value in all requests of the block

	takenSteps, restartCount int
	riskBefore, riskAfter    float64
	metricByName             map[string]float64
}

// TakeSteps implements [training.LocalStepBlock].
func (b *programBlock) TakeSteps(x []float32, first, last uint64) error {
	if !b.mixes || b.steps == b.blockSteps {
		return b.fit(x, first, first, last)
	}
	for s := first; s <= last; s++ {
		if !task.IsGradientStep(s, b.blockSteps, b.steps) {
			continue
		}
		n := s * b.steps / b.blockSteps // number of the step for the program, which does not count skipped steps
		if err := b.fit(x, s, n, n); err != nil {
			return err
		}
	}
	return nil
}

// fit requests the local steps first to last from the program. The parameter s is the number of the first step in the
// block's step size schedule.
func (b *programBlock) fit(x []float32, s, first, last uint64) error {
	switch over := b.job.ShouldStop != nil && b.job.ShouldStop() || b.ctx.Err() != nil; {
	case over && b.mixes: // Neighbours would use a partial result as the result of the block.
		return task.ErrStoppedMidBlock
	case over:
		return nil
	case b.run == nil:
		run, err := b.program.ensureProcess(b.ctx)
		if err != nil {
			return fmt.Errorf("trainer %s: %w", b.program.trainerName, err)
		}
		b.run = run
	}
	what := b.fitTemplate
	what.FirstStep, what.LastStep = first, last
	for what.BlockSteps < last { // Extend the block, because endless training exceeds its length.
		what.BlockSteps += b.fitTemplate.BlockSteps
	}
	what.StepSize = b.stepWeight * b.compiledTask.Schedule.StepSizeAt(b.job.StepOffset+s)
	a, err := b.program.fit(b.ctx, b.run, x, what)
	for b.consumeRetry(err) {
		if b.run, err = b.program.awaitRestart(b.ctx); err == nil {
			a, err = b.program.fit(b.ctx, b.run, x, what)
		}
	}
	if err != nil {
		return fmt.Errorf("trainer %s: %w", b.program.trainerName, err)
	}
	if a.RiskBefore != nil && first == 1 {
		b.riskBefore = *a.RiskBefore
	}
	if a.RiskAfter != nil {
		b.riskAfter = *a.RiskAfter
	}
	b.takenSteps += int(a.TakenSteps)
	b.metricByName = a.MetricByName
	if b.mixes && a.TakenSteps < last-first+1 {
		return task.ErrStoppedMidBlock
	}
	return nil
}

// maxBlockRestarts is the maximum number of program restarts in a mixing block, per round.
const maxBlockRestarts = 3

// consumeRetry reports whether the block may repeat the failed steps with a new process of the program. Only mixing
// blocks are retried, because neighbours depend on them. A block with a proximal term is not retried, because the base
// of the term is lost.
func (b *programBlock) consumeRetry(err error) bool {
	if err == nil || !b.mixes || b.fitTemplate.Proximal > 0 || b.restartCount >= maxBlockRestarts ||
		b.ctx.Err() != nil ||
		errors.As(err, new(*requestRefusedError)) || errors.As(err, new(*learner.DivergenceError)) ||
		errors.Is(err, errClosed) || errors.Is(err, task.ErrNoSteps) {
		return false
	}
	b.restartCount++
	return true
}

// OutcomeFromBase implements [training.LocalStepBlock].
func (b *programBlock) OutcomeFromBase(base, x []float32) (task.LocalOutcome[float32], error) {
	out := task.LocalOutcome[float32]{StepsTaken: b.takenSteps, RiskBefore: b.riskBefore, RiskAfter: b.riskAfter}
	b.takenSteps, b.restartCount = 0, 0
	stretch := float32(1)
	if !b.mixes {
		if out.StepsTaken == 0 {
			return out, task.ErrNoSteps
		}
		stretch = float32(float64(b.steps) / float64(out.StepsTaken))
	} else {
		x = slices.Clone(x)        // Keep x unchanged, because mixing continues with x.
		b.riskBefore = b.riskAfter // The next round of an endless block starts with this risk.
	}
	if len(b.metricByName) > 0 {
		b.program.context.log.Info("trainer metrics", "trainer", b.program.trainerName, "round",
			b.fitTemplate.Round,
			"metrics", formatMetrics(b.metricByName))
	}
	out.OwnParameters = b.compiledTask.OwnParameters(x)
	err := out.SetScaledChange(x, base, stretch)
	out.UpdateVector = b.compiledTask.SharedParameters(out.UpdateVector)
	return out, err
}

// Score implements [training.ScoringBlock].
func (b *programBlock) Score(model []float32) (*learner.Score, error) {
	if b.run == nil || b.ctx.Err() != nil || !slices.Contains(b.run.helloAnswer.Capabilities, capabilityEvaluate) {
		return nil, nil // There is no time left, or the program cannot score models.
	}
	f, err := b.program.evaluate(b.ctx, b.run, model)
	if err != nil {
		return nil, err
	}
	figure := func(name string) float64 {
		if x, ok := f.OtherMetricByName[name]; ok {
			return x
		}
		return math.NaN()
	}
	return &learner.Score{Risk: f.Risk, Samples: f.Rows, R2: figure("r2"), Accuracy: figure("accuracy")}, nil
}

// InitialPersonalParameters implements [training.OpaqueTrainer].
func (t *ProgramTrainer) InitialPersonalParameters(ctx context.Context, p *task.CompiledTask[float32]) ([]float32,
	error) {
	of, err := t.findProgramForTask(p)
	if err != nil {
		return nil, err
	}
	var x []float32
	run, err := of.ensureProcess(ctx)
	if err == nil {
		x, err = of.initialParameters(ctx, run)
	}
	if err != nil {
		return nil, fmt.Errorf("trainer %s: %w", of.trainerName, err)
	}
	return p.OwnParameters(x), nil
}

// Evaluate implements [evaluation.EvaluatingProgram].
func (t *ProgramTrainer) Evaluate(ctx context.Context, p *task.CompiledTask[float32],
	model []float32) (evaluation.ModelScoreByProgram, error) {
	of, err := t.findProgramForTask(p)
	if err != nil {
		return evaluation.ModelScoreByProgram{}, err
	}
	run, err := of.ensureProcess(ctx)
	if err == nil && slices.Contains(run.helloAnswer.Capabilities, capabilityEvaluate) {
		var f evaluation.ModelScoreByProgram
		if f, err = of.evaluate(ctx, run, model); err == nil {
			return f, nil
		}
	}
	if err != nil {
		err = fmt.Errorf("trainer %s: %w", of.trainerName, err)
	}
	return evaluation.ModelScoreByProgram{}, err
}

// findProgramForTask returns the external program that trains the given task.
func (t *ProgramTrainer) findProgramForTask(p *task.CompiledTask[float32]) (*program, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.programByTrainer[p.Task.External.TrainerName]
	if of == nil || of.encodedTask != encodeTask(&p.Task) { // The agent has switched to another task.
		return nil, errClosed
	}
	return of, nil
}

// maxShownMetrics is the maximum number of a program's metrics that are logged.
const maxShownMetrics = 16

// formatMetrics formats the metrics of a program for a log message.
func formatMetrics(of map[string]float64) string {
	var all []string
	for name, x := range of {
		all = append(all, fmt.Sprintf("%s=%.6g", textPrefix(name, 200), x))
	}
	slices.Sort(all)
	return strings.Join(all[:min(len(all), maxShownMetrics)], " ")
}

// Moments implements [training.Trainer].
func (t *ProgramTrainer) Moments(p *task.CompiledTask[float32], s *learner.Samples[float32]) ([]float64, error) {
	if p.Task.External.IsEnabled() {
		return nil, errors.New("column statistics are not available: the rows of an external trainer have no columns")
	}
	return t.Trainer.Moments(p, s)
}
