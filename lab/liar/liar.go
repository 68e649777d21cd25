// Package liar provides a trainer that makes an agent send false data. Tests and simulations use it to check robust
// aggregation.
package liar

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/lab/attack"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// Lie describes the false data that an agent sends. Fields that are nil or 0 leave the data unchanged.
type Lie struct {
	ChangeUpdate func(v []float32, rng *rand.Rand) // changes the agent's update, or its gradient, in place
	FlipsLabels  bool                              // true to train with false target values

	ChangeMoments func(v []float64) // changes the column moments in place; layout: n, means, sums of squared deviations
	Rows          uint64            // number of rows to report; 0 means the true number
	// ChangeSnapshot changes the agent's snapshots for its neighbours in place. If it is set, the agent ignores the
	// snapshots of its neighbours.
	ChangeSnapshot func(x []float32)
}

// lies contains the kinds of false data that are not attacks in package attack.
var lies = map[string]Lie{
	"max":     {ChangeUpdate: withoutRand(setAllElements(math.MaxFloat32))},
	"nan":     {ChangeUpdate: withoutRand(setAllElements(float32(math.NaN())))},
	"moments": {ChangeMoments: func(v []float64) { moments(v, 1e6, 0) }, ChangeUpdate: withoutRand(setAllElements(0))},
	// The names "mix …" belong to lies that change only the snapshots for neighbours.
	"mix 5":    {ChangeSnapshot: setAllElements(5)},
	"mix flip": {ChangeSnapshot: scaleAllElements(-1)},
	"mix 1e30": {ChangeSnapshot: setAllElements(1e30)},
	"rows": {Rows: 1e9, ChangeMoments: func(v []float64) { v[0] = 1e9; moments(v, 0, 1) },
		ChangeUpdate: withoutRand(setAllElements(0))},
}

// Parse returns the lie with the given name: an entry of lies, or an attack of package attack that needs no updates of
// other agents.
func Parse(name string) (Lie, error) {
	if l, known := lies[name]; known {
		return l, nil
	}
	a, err := attack.Parse(name)
	if err != nil || a.IsCollusion() {
		return Lie{}, fmt.Errorf("unknown lie, want one of %s; got %q", strings.Join(Names(), ", "), name)
	}
	if a.FlipsLabels() {
		return Lie{FlipsLabels: true}, nil
	}
	return Lie{ChangeUpdate: func(v []float32, rng *rand.Rand) { attack.CorruptUpdate(a, v, rng) }}, nil
}

// Names returns the sorted names of all lies. A number after a colon is the default parameter of an attack.
func Names() []string {
	names := slices.Collect(maps.Keys(lies))
	for _, name := range attack.Names() {
		if a, err := attack.Parse(name); err == nil && !a.IsCollusion() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func withoutRand(change func(v []float32)) func([]float32, *rand.Rand) {
	return func(v []float32, _ *rand.Rand) { change(v) }
}

func setAllElements(x float32) func([]float32) {
	return func(v []float32) {
		for i := range v {
			v[i] = x
		}
	}
}

func scaleAllElements(x float32) func([]float32) {
	return func(v []float32) {
		for i := range v {
			v[i] *= x
		}
	}
}

// moments overwrites the moments in v, so that every column has the given mean and variance. moments keeps the number
// of rows v[0].
func moments(v []float64, mean, variance float64) {
	columns := (len(v) - 1) / 2
	for j := range columns {
		v[1+j], v[1+columns+j] = mean, v[0]*variance
	}
}

// Trainer wraps a trainer and replaces its true results by the false data of a Lie.
type Trainer struct {
	training.Trainer
	Lie
}

// ReportedRowCount implements training.Trainer.
func (l Trainer) ReportedRowCount(s *learner.Samples[float32]) uint64 {
	if l.Rows > 0 {
		return l.Rows
	}
	return l.Trainer.ReportedRowCount(s)
}

// Moments implements training.Trainer.
func (l Trainer) Moments(p *task.CompiledTask[float32], s *learner.Samples[float32]) ([]float64, error) {
	v, err := l.Trainer.Moments(p, s)
	if err == nil && l.ChangeMoments != nil {
		l.ChangeMoments(v)
	}
	return v, err
}

// NewBlock implements training.Trainer.
func (l Trainer) NewBlock(ctx context.Context, r wire.RoundID, p *task.CompiledTask[float32],
	j task.LocalJob[float32]) (training.LocalStepBlock,
	error) {
	if l.FlipsLabels {
		j.Samples = attack.Flip(p.Model.Architecture(), j.Samples)
	}
	b, err := l.Trainer.NewBlock(ctx, r, p, j)
	if err == nil && l.ChangeSnapshot != nil {
		b = &twoFacedBlock{LocalStepBlock: b, lie: l.ChangeSnapshot, own: slices.Clone(j.BaseParameters)}
	}
	if err != nil || l.ChangeUpdate == nil {
		return b, err
	}
	return alteredBlock{b, func(v []float32) { l.ChangeUpdate(v, j.Rand) }}, nil
}

// twoFacedBlock trains on the agent's own parameters but sends false parameters to the neighbours. It ignores the
// result of mixing and does not implement training.TracedBlock.
type twoFacedBlock struct {
	training.LocalStepBlock
	lie func(x []float32)
	own []float32
}

// TakeSteps implements training.LocalStepBlock.
func (b *twoFacedBlock) TakeSteps(x []float32, first, last uint64) error {
	copy(x, b.own)
	err := b.LocalStepBlock.TakeSteps(x, first, last)
	if err == nil && !slices.Equal(x, b.own) {
		copy(b.own, x)
		b.lie(x)
	}
	return err
}

// OutcomeFromBase implements training.LocalStepBlock.
func (b *twoFacedBlock) OutcomeFromBase(base, _ []float32) (task.LocalOutcome[float32], error) {
	return b.LocalStepBlock.OutcomeFromBase(base, b.own)
}

// alteredBlock is a block that changes the agent's update after training. alteredBlock does not implement
// training.TracedBlock.
type alteredBlock struct {
	training.LocalStepBlock
	change func(v []float32)
}

// OutcomeFromBase implements training.LocalStepBlock.
func (b alteredBlock) OutcomeFromBase(base, x []float32) (task.LocalOutcome[float32], error) {
	out, err := b.LocalStepBlock.OutcomeFromBase(base, x)
	if err == nil {
		b.change(out.UpdateVector)
	}
	return out, err
}
