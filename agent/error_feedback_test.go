package agent_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// steady is a trainer whose parameter change is always (4, 3).
type steady struct{ training.LocalTrainer }

func (steady) NewBlock(context.Context, wire.RoundID, *task.CompiledTask[float32],
	task.LocalJob[float32]) (training.LocalStepBlock,
	error) {
	return steady{}, nil
}

func (steady) TakeSteps([]float32, uint64, uint64) error { return nil }

func (steady) OutcomeFromBase(_, _ []float32) (task.LocalOutcome[float32], error) {
	return task.LocalOutcome[float32]{UpdateVector: []float32{4, 3}, StepsTaken: 1}, nil
}

// sentIn trains in an announced round and returns the only element in the update that the agent sends.
func (s *scene) sentIn(r wire.RoundID, a wire.Announcement) string {
	s.invite(r, s.announce(r, a))
	wait(10 * time.Second)
	_, u := s.update()
	return fmt.Sprint(binary.LittleEndian.Uint32(u.InlinePayload), ":",
		math.Float32frombits(binary.LittleEndian.Uint32(u.InlinePayload[4:])))
}

// TestFeedback checks error feedback: elements that the codec top_k does not send are added to the next update,
// depending on whether this update was aggregated, also across restarts. The change (4, 3) is sent as 4. The next
// update must contain 6 if this update was aggregated, 8 if the coordinator has not used it, and 4 if nothing is kept.
func TestFeedback(t *testing.T) {
	const folded, unused, nothing = "1:6", "0:8", "0:4"
	for name, tt := range map[string]struct {
		fate wire.UpdateFate
		// whether the outcome of the update arrives in answer to a hello message instead of with the announcement
		reply  bool
		refuse wire.UpdateRefusalReason // reason for refusing the update; 0 means that it is accepted
		want   string
	}{
		"folded":               {wire.FateAggregated, false, 0, folded},
		"left out":             {wire.FateDominantNorm, false, 0, nothing},
		"passed over":          {wire.FateLeftOutByRule, false, 0, nothing},
		"missed":               {wire.FateMissedRoundEnd, false, 0, unused},
		"abandoned":            {wire.FateRoundAbandoned, false, 0, unused},
		"refused":              {wire.FateMissedRoundEnd, false, wire.RefuseLate, unused},
		"refused, and folded":  {wire.FateAggregated, false, wire.RefuseLate, folded},
		"too long":             {wire.FateMissedRoundEnd, false, wire.RefuseNormTooLarge, nothing},
		"another one is there": {wire.FateMissedRoundEnd, false, wire.RefuseConflict, nothing},
		"folded, asked":        {wire.FateAggregated, true, 0, folded},
		"abandoned asked":      {wire.FateRoundAbandoned, true, 0, unused},
		"unknown, asked":       {wire.FateRoundForgotten, true, 0, nothing},
		"never answered":       {0, true, 0, nothing},
	} {
		for _, restart := range []string{"", "before", "after", "both"} {
			t.Run(name+" "+restart, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newScene(t)
					s.cfg.Training.Trainer = steady{}
					tk := taskOf("press")
					tk.Training.UpdateCodec = spec.TopKCodec(0.3)
					s.start()
					if sent := s.sentIn(1, s.training(tk, 0, 0)); sent != "0:4" {
						t.Fatalf("round 1 has %s, want 0:4", sent)
					}
					_, u := s.update()
					digest := u.PayloadManifest.Hash
					if tt.refuse != 0 {
						s.direct(wire.TypeUpdateRefused, 1, (&wire.UpdateRefused{Update: digest,
							Reason: tt.refuse}).Body())
					} else {
						s.direct(wire.TypeUpdateAccepted, 1, (&wire.UpdateAccepted{Update: digest}).Body())
					}
					again := func(when string) {
						if restart == when || restart == "both" {
							wait(time.Second)
							s.stop()
							s.start()
							s.send(s.topics.Announcement(), s.announced)
							wait(time.Second)
						}
					}
					again("before")
					next := s.training(tk, 1, 1)
					next.LastEndedRound, next.Phase = 1, wire.PhaseGathering
					o := wire.RoundOutcome{Round: 1, IsAbandoned: tt.fate == wire.FateRoundAbandoned}
					if tt.fate != wire.FateMissedRoundEnd && !o.IsAbandoned {
						tag := wire.UpdateTagOf(s.run, 1, "press", digest)
						o.UpdateFates = []wire.TaggedUpdateFate{{Tag: tag, Fate: tt.fate}}
					}
					if !tt.reply {
						next.LastRoundOutcome = inline(o.Body())
					}
					s.announce(2, next)
					wait(30 * time.Second)
					// The coordinator may have forgotten a refused update.
					if (tt.reply || tt.refuse != 0) && tt.fate != 0 {
						s.direct(wire.TypeUpdateFateAnswer, 1, (&wire.UpdateFateAnswer{Update: digest,
							Fate: tt.fate}).Body())
					}
					again("after")
					next.Phase = wire.PhaseOpen
					if sent := s.sentIn(2, next); sent != tt.want {
						t.Errorf("round 2 has %s, want %s", sent, tt.want)
					}
				})
			})
		}
	}
}
