package slow_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/internal/testkit/trainers"
	"github.com/fedmesh/fedmesh/lab/slow"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// instant is a trainer whose local steps do nothing.
type instant struct{ training.Trainer }

func (instant) NewBlock(context.Context, wire.RoundID, *task.CompiledTask[float32],
	task.LocalJob[float32]) (training.LocalStepBlock,
	error) {
	return nothing{}, nil
}

type nothing struct{ training.LocalStepBlock }

func (nothing) TakeSteps([]float32, uint64, uint64) error { return nil }

// TestSlow checks that local steps take the configured time, in one call or in several calls. Cancelling the context
// must end the delay.
func TestSlow(t *testing.T) {
	for _, each := range []uint64{5, 1} {
		for within, want := range map[time.Duration]time.Duration{time.Minute: 10 * time.Second,
			3 * time.Second: 3 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), within)
				defer cancel()
				began := time.Now()
				b, err := slow.Trainer{Trainer: instant{}, StepTime: 2 * time.Second}.NewBlock(ctx, 1, nil,
					task.LocalJob[float32]{})
				for at := uint64(0); at < 5 && err == nil; at += each {
					err = b.TakeSteps(nil, at+1, at+each)
				}
				if took := time.Since(began); err != nil || took != want {
					t.Errorf("five steps of 2 s within %v, %d at once, took %v, want %v; %v", within, each, took, want,
						err)
				}
			})
		}
	}
}

// TestSuite checks that a delayed trainer passes the conformance suite of trainers.
func TestSuite(t *testing.T) {
	trainers.Suite(t, trainers.Traits{StepTime: time.Second},
		func() training.Trainer { return slow.Trainer{Trainer: training.LocalTrainer{}, StepTime: time.Second} })
}
