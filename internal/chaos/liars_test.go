//go:build chaos

package chaos

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// TestLiars has one device of seven lie for a hundred rounds. The score must stay above a bound.
func TestLiars(t *testing.T) {
	in := func(kind wire.Kind, vector func(w []float32) []byte, samples uint64) lie {
		return func(k wire.Kind, w []float32, features int) ([]byte, uint64) {
			if k != kind {
				return honest(features)
			}
			return vector(w), samples
		}
	}
	training := func(x float64) lie {
		return in(wire.KindTraining, func(w []float32) []byte { return floats32(len(w), x) }, 60)
	}
	statistics := func(n, sum, squares float64) lie {
		return func(k wire.Kind, w []float32, features int) ([]byte, uint64) {
			if k == wire.KindStatistics {
				return moments(features+1, n, sum, squares), uint64(n)
			}
			return floats32(len(w), 0), 60
		}
	}
	for _, c := range []struct {
		name, what string
		lies       wire.Kind
		lie        lie
		round      string
		claims     uint64
	}{
		{"lie_statistics", "1 of 7 lies in the statistics round: sums ±10⁶, squares 10¹²", wire.KindStatistics,
			statistics(1, 1e6, 1e12), "", 1},
		{"lie_rows", "1 of 7 claims 10⁹ rows in it", wire.KindStatistics, statistics(1e9, 0, 1e9), "", 1e9},
		{"lie_1e30", "1 of 7 sends 10³⁰ in every round", wire.KindTraining, training(1e30), "", 60},
		{"lie_max", "1 of 7 sends 3.4·10³⁸ in every round", wire.KindTraining, training(3.4e38), "", 60},
		{"lie_nan", "1 of 7 sends NaN in every round", wire.KindTraining, training(math.NaN()), "", 60},
		{"lie_samples", "1 of 7 claims 10⁹ samples under `weights: samples`", wire.KindTraining,
			in(wire.KindTraining, func(w []float32) []byte { return floats32(len(w), 0) }, 1e9),
			", weights: samples", 1e9},
		{"silent", "1 of 7 joins every round and never sends", wire.KindTraining,
			in(wire.KindTraining, func([]float32) []byte { return nil }, 60), "", 60},
	} {
		results.run(t, fault{c.name, c.what, "the federation neither stops nor learns it: R² stays above 0.9",
			func(t *testing.T) string {
				x, line := newLiar(t, "liar", c.lies, c.lie)
				x.samples = c.claims
				p := newPlant(t, layout{agents: 6, quorum: 4, deadline: 5 * time.Second, others: line, round: c.round})
				x.start(p.Broker)
				p.start()
				p.await(5, 2*time.Minute)
				hundred := p.await(105, 10*time.Minute)
				if x.sent.Load() == 0 && c.name != "silent" {
					t.Error("the liar has sent nothing: this shows nothing")
				}
				r2 := p.r2()
				const good = 0.9
				if !(r2 > good) {
					t.Errorf("R² is %v after %d lies, want above %v", r2, x.sent.Load(), good)
				}
				p.stop()
				return fmt.Sprintf("R² %.3f after %d lies; 100 rounds in %s, %d abandoned", r2, x.sent.Load(),
					hundred.Round(100*time.Millisecond), p.abandoned())
			}})
	}
}
