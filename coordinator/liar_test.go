package coordinator_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/mqtt/memory"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// false rows of a device, in the columns of rowsOf.
func falseRows(n int, warm, wet, wind, power float64) table {
	return table("warm,wet,wind,power\n" + strings.Repeat(fmt.Sprintf("%g,%g,%g,%g\n", warm, wet, wind, power), n/2) +
		strings.Repeat(fmt.Sprintf("%g,%g,%g,%g\n", -warm, -wet, -wind, power), n-n/2))
}

// One device of seven gives false statistics and leaves. The model becomes as good as without it.
func TestStatisticsOfOneLiar(t *testing.T) {
	for _, tt := range []struct {
		name string
		rows table
	}{
		{"a million", falseRows(10, 1e6, -1e6, 1e6, 400)},
		{"near the largest float32", falseRows(10, 1e37, 1e37, 1e37, 1e37)},
		{"a false target", falseRows(10, 15, 60, 2, -1e9)},
		{"no spread", falseRows(1000, 0, 0, 0, 0)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFederation(t, 7, memory.Options{})
				f.cfg.Held, f.cfg.Round.Rounds = rowsOf(3, 100), 15
				f.cfg.Round.Participants, f.cfg.Round.Quorum, f.cfg.Round.Gather.Minimum = 6, 6, 6
				liar := f.agents[6]
				liar.data = tt.rows
				f.start()
				f.until(time.Hour, "standardised", func() bool { return len(facts[coordinator.StatisticsReady](f)) == 1 })
				liar.kill()
				f.finished(10 * time.Hour)
				models := facts[coordinator.ModelReady](f)
				if r2 := models[len(models)-1].Score.R2; !(r2 > 0.98) {
					t.Errorf("R² %v; without the liar it is over 0.98", r2)
				}
				far := facts[coordinator.StatisticsReady](f)[0].Far
				if spread := tt.name != "no spread"; spread && (len(far) != 1 || far[0].Agent != liar.id) || !spread && len(far) > 0 {
					t.Errorf("far from the others: %+v", far)
				}
			})
		})
	}
}

// Statistics that no data can have are refused, each for its agent alone.
func TestImpossibleStatistics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 3, memory.Options{})
		evil := []wire.AgentID{"rows", "none", "spread", "large"}
		for _, id := range evil {
			f.enrol(id)
		}
		f.cfg.Round.Rounds, f.cfg.Round.Quorum = 1, 3
		f.cfg.Round.Gather.Target = 3 + len(evil)
		s := newStranger(f)
		f.start()
		s.listen()
		for _, id := range evil {
			s.say(f.topics.Status(id), s.hello(id))
		}
		f.until(time.Minute, "open", func() bool { return len(facts[round.RoundOpened](f)) == 1 })
		s.listen()
		offer := func(id wire.AgentID, v ...float64) {
			s.offer(id, s.update(id, func(_ *wire.Header, u *wire.Update) {
				payload := wire.AppendVector(nil, v)
				m, err := wire.NewManifest(payload, s.ann.Schema)
				if err != nil {
					t.Fatal(err)
				}
				u.Kind, u.Samples, u.Payload, u.Inline = wire.KindStatistics, 10, m, payload
			}, 0))
		}
		offer("rows", 1e9, 150, 600, 20, 4000, 3000, 40000, 60, 1.6e6)
		offer("none", 0, 150, 600, 20, 4000, 3000, 40000, 60, 1.6e6)
		offer("spread", 10, 150, 600, 20, 4000, 100, 40000, 60, 1.6e6)
		offer("large", 10, 150, 600, 20, 4000, 1e150, 40000, 60, 1.6e6)
		for _, v := range f.verdicts() {
			if v != "refused: malformed" {
				t.Errorf("%q", v)
			}
		}
		if n := len(f.verdicts()); n != len(evil) {
			t.Errorf("%d of %d refused", n, len(evil))
		}
		f.finished(time.Hour)
	})
}
