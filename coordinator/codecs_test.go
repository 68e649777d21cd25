package coordinator_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// passesOver is an agent whose build passes over the section of the task that names the codec.
type passesOver struct{ agent.Learner }

func (o passesOver) Block(ctx context.Context, r wire.RoundID, p *task.Problem[float32], j task.Job[float32]) (
	agent.Block, error) {
	p.Task.Training.Codec = spec.CodecRaw
	return o.Learner.Block(ctx, r, p, j)
}

// TestRoundOfTwoCodecs: an agent that does not know the codec of a round sends raw updates, and they count with the
// others; also where the coordinator is killed while updates come in, and again while they are folded.
func TestRoundOfTwoCodecs(t *testing.T) {
	for _, word := range spec.Codecs()[len(spec.MixingCodecs()):] {
		t.Run(string(word), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { twoCodecs(t, word) }) })
	}
}

func twoCodecs(t *testing.T, word spec.Codec) {
	f := newFederation(t, 3, memory.Options{})
	f.cfg.Task.Training.Codec = word
	f.agents[1].cfg.Trainer = passesOver{}
	accepted := 0
	f.coord.moment = func(fact any) {
		switch a, ok := fact.(round.UpdateAccepted); {
		case ok && a.Round == 3:
			if accepted++; accepted == 2 || accepted == 3 {
				f.coord.kill()
			}
		}
	}
	f.start()
	for range 2 {
		<-f.coord.life.done
		f.coord.again()
	}
	f.finished(time.Hour)
	if r := facts[round.UpdateRefused](f); len(r) > 0 {
		t.Errorf("refused: %+v", r)
	}
	updates := facts[round.UpdateAccepted](f)
	if len(updates) != 18 {
		t.Errorf("%d updates in six rounds of three agents", len(updates))
	}
	for _, a := range updates {
		want := word
		if a.Agent == "a1" || a.Update.Kind == wire.KindStatistics {
			want = spec.CodecRaw
		}
		if a.Update.Payload.Codec != want {
			t.Errorf("%s sends %s in round %d, want %s", a.Agent, a.Update.Payload.Codec, a.Round, want)
		}
	}
}
