// Package liar makes an agent send what is not true, for tests and the laboratory: a decorator around its trainer, as
// package slow.
package liar

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// Lie is what an agent makes of the truth; what is nil or 0 stays true.
type Lie struct {
	Update  func(v []float32) // changes Δ_k, or g_k, in place
	Moments func(v []float64) // changes [n, s_1 … s_m, q_1 … q_m], in place
	Rows    uint64            // that it says it has
	Mixes   func(x []float32) // changes what its neighbours hear, in place; what they say changes nothing of its own
}

// lies is the table of the lies that have a name.
var lies = map[string]Lie{
	"1e30":      {Update: all(1e30)},
	"max":       {Update: all(math.MaxFloat32)},
	"nan":       {Update: all(float32(math.NaN()))},
	"zero":      {Update: all(0)},
	"backwards": {Update: times(-10)}, // ten times the update, with the other sign
	"flipped":   {Update: times(-1)},
	"moments":   {Moments: func(v []float64) { moments(v, 1e6, 1e12) }, Update: all(0)},
	// A billion rows with no mean, and nothing learned from them.
	"mix 5":    {Mixes: all(5)},
	"mix flip": {Mixes: times(-1)},
	"mix 1e30": {Mixes: all(1e30)},
	"rows":     {Rows: 1e9, Moments: func(v []float64) { v[0] = 1e9; moments(v, 0, 1) }, Update: all(0)},
}

// Parse returns the lie of that name.
func Parse(name string) (Lie, error) {
	if l, known := lies[name]; known {
		return l, nil
	}
	return Lie{}, fmt.Errorf("want a lie, one of %s; got %q", strings.Join(Names(), ", "), name)
}

// Names returns the names of all lies, sorted.
func Names() []string { return slices.Sorted(maps.Keys(lies)) }

func all(x float32) func([]float32) {
	return func(v []float32) {
		for i := range v {
			v[i] = x
		}
	}
}

func times(x float32) func([]float32) {
	return func(v []float32) {
		for i := range v {
			v[i] *= x
		}
	}
}

// moments makes v those of as many rows whose columns all have one mean and one mean square.
func moments(v []float64, mean, square float64) {
	columns := (len(v) - 1) / 2
	for j := range columns {
		v[1+j], v[1+columns+j] = v[0]*mean, v[0]*square
	}
}

// Trainer works as another one, and lies about it.
type Trainer struct {
	agent.Trainer
	Lie
}

// Rows implements agent.Trainer.
func (l Trainer) Rows(s *learner.Samples[float32]) uint64 {
	if l.Lie.Rows > 0 {
		return l.Lie.Rows
	}
	return l.Trainer.Rows(s)
}

// Moments implements agent.Trainer.
func (l Trainer) Moments(p *task.Problem[float32], s *learner.Samples[float32]) ([]float64, error) {
	v, err := l.Trainer.Moments(p, s)
	if err == nil && l.Lie.Moments != nil {
		l.Lie.Moments(v)
	}
	return v, err
}

// Block implements agent.Trainer.
func (l Trainer) Block(ctx context.Context, r wire.RoundID, p *task.Problem[float32], j task.Job[float32]) (agent.Block,
	error) {
	b, err := l.Trainer.Block(ctx, r, p, j)
	if err == nil && l.Mixes != nil {
		b = &twoFaced{Block: b, lie: l.Mixes, own: slices.Clone(j.Base)}
	}
	if err != nil || l.Update == nil {
		return b, err
	}
	return block{b, l.Update}, nil
}

// twoFaced takes local steps on parameters of its own, and shows others to its neighbours. It hides whether a block is
// agent.Audited.
type twoFaced struct {
	agent.Block
	lie func(x []float32)
	own []float32
}

// Take implements agent.Block.
func (b *twoFaced) Take(x []float32, first, last uint64) error {
	copy(x, b.own)
	err := b.Block.Take(x, first, last)
	if err == nil && !slices.Equal(x, b.own) { // it has taken steps, of which neighbours hear
		copy(b.own, x)
		b.lie(x)
	}
	return err
}

// OutcomeFrom implements agent.Block.
func (b *twoFaced) OutcomeFrom(base, _ []float32) (task.Outcome[float32], error) {
	return b.Block.OutcomeFrom(base, b.own)
}

// block is the local steps of a block whose outcome is changed. It hides whether a block is agent.Audited.
type block struct {
	agent.Block
	change func(v []float32)
}

// OutcomeFrom implements agent.Block.
func (b block) OutcomeFrom(base, x []float32) (task.Outcome[float32], error) {
	out, err := b.Block.OutcomeFrom(base, x)
	if err == nil {
		b.change(out.Vector)
	}
	return out, err
}
