package coordinator_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// passesOver is a trainer that reports no support for the task section that selects the codec.
type passesOver struct{ training.LocalTrainer }

func (o passesOver) NewBlock(ctx context.Context, r wire.RoundID, p *task.CompiledTask[float32],
	j task.LocalJob[float32]) (
	training.LocalStepBlock, error) {
	p.Task.Training.UpdateCodec = spec.CodecRaw
	return o.LocalTrainer.NewBlock(ctx, r, p, j)
}

// TestRoundOfTwoCodecs checks that an agent without support for the codec of a round sends raw updates, which are
// aggregated with the encoded updates of the other agents. The coordinator is killed during uploads and during the
// aggregation.
func TestRoundOfTwoCodecs(t *testing.T) {
	for _, word := range spec.Codecs()[len(spec.MixingCodecs()):] {
		t.Run(string(word), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { twoCodecs(t, word) }) })
	}
}

func twoCodecs(t *testing.T, word spec.Codec) {
	f := newFederation(t, 3, memory.Options{})
	f.cfg.Task.Training.UpdateCodec = word
	f.agents[1].cfg.Training.Trainer = passesOver{}
	accepted, kills := 0, 0
	f.coord.moment = func(event any) {
		switch x := event.(type) {
		case round.UpdateAccepted:
			if x.Round == 3 && kills == 0 {
				accepted++
			}
		case round.PhaseEntered:
			if kills != 1 || x.Phase != round.CoordinatorClosing {
				return
			}
			accepted = 2
		default:
			return
		}
		if accepted == 2 {
			accepted = 0
			kills++
			f.coord.kill()
		}
	}
	f.start()
	for range 2 {
		f.until(time.Hour, "killed", func() bool { return f.isDead(f.coord.life) })
		f.coord.again()
	}
	f.finished(time.Hour)
	wait(time.Minute) // until agents have received the acceptances of their last updates
	if r := events[round.UpdateRefused](f); len(r) > 0 {
		t.Errorf("refused: %+v", r)
	}
	done := map[wire.RoundID]int{}
	for _, e := range events[agentround.WorkEnded](f) {
		if e.Result == agentround.WorkAccepted {
			done[e.Round]++
		}
	}
	for r := wire.RoundID(1); r <= 6; r++ {
		if done[r] != 3 {
			t.Errorf("%d updates of three agents were taken in round %d", done[r], r)
		}
	}
	for _, a := range events[round.UpdateAccepted](f) { // updates recovered after a restart cause no event
		want := word
		if a.Agent == "a1" || a.Update.Kind == wire.KindStatistics {
			want = spec.CodecRaw
		}
		if a.Update.PayloadManifest.Codec != want {
			t.Errorf("%s sends %s in round %d, want %s", a.Agent, a.Update.PayloadManifest.Codec, a.Round, want)
		}
	}
}
