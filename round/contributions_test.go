package round_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

func TestNotFinite(t *testing.T) {
	t.Run("float32", testNotFinite[float32])
	t.Run("float64", testNotFinite[float64])
}

func testNotFinite[T wire.Float](t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		if err := round.ApplyStep(make([]T, 2), []T{1, 1}, []float64{0, bad}); !errors.Is(err, wire.ErrNotFinite) {
			t.Errorf("a sum of %v made a model: %v", bad, err)
		}
	}
}

func TestAdvance(t *testing.T) {
	base := []float32{1, -2, 0.5, 1e30}
	acc := []float64{0.25, 1e-9, -0.5, 0}
	dst := make([]float32, 4)
	if err := round.ApplyStep(dst, base, acc); err != nil {
		t.Fatal(err)
	}
	if want := []float32{1.25, -2, 0, 1e30}; !slices.Equal(dst, want) {
		t.Errorf("got %v, want %v", dst, want)
	}
	// ApplyStep must add in float64 and round the result once. In float32, 1 + 2⁻²⁵ + 2⁻²⁵ equals the tie 1 + 2⁻²⁴
	// between two numbers; a third term 2⁻²⁵ must therefore round the result up.
	if err := round.ApplyStep(dst[:1], []float32{1}, []float64{3 * 0x1p-25}); err != nil || dst[0] != 1+0x1p-23 {
		t.Errorf("got %v, %v, want 1 + 2⁻²³", dst[0], err)
	}
	// A step that is finite in float64 may exceed the range of float32.
	if err := round.ApplyStep(dst[:1], []float32{math.MaxFloat32}, []float64{math.MaxFloat32}); !errors.Is(err,
		wire.ErrNotFinite) {
		t.Errorf("a model beyond float32 was made: %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("three lengths did not panic")
		}
	}()
	_ = round.ApplyStep(dst, base, acc[:3])
}

// TestContributions checks that contributions are returned in the order of aggregation, whatever the order of the
// accepted updates.
func TestContributions(t *testing.T) {
	cfg := round.DefaultConfig()
	plan := round.Plan{Kind: wire.KindTraining, Exchange: spec.ExchangeParameters}
	var all []round.Participant
	for k := range 300 {
		all = append(all, round.Participant{Agent: wire.AgentID(fmt.Sprint("a", k)), DrawCount: 1 + k%3, Weight: 0.5})
	}
	want := round.BuildContributions(all, &plan, &cfg)
	rng := rand.New(rand.NewPCG(3, 4))
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if got := round.BuildContributions(all, &plan, &cfg); !slices.Equal(got, want) {
		t.Error("the set depends on the order in which the updates came")
	}
	for i, c := range want {
		if c.Bucket != rule.BucketOfAgent(cfg.Seed, c.Agent) || c.ContributionFactor != float64(c.DrawCount) {
			t.Errorf("%+v", c)
		}
		if i > 0 && (want[i-1].Bucket > c.Bucket || want[i-1].Bucket == c.Bucket && want[i-1].Agent >= c.Agent) {
			t.Errorf("%s of bucket %d comes after %s of bucket %d", c.Agent, c.Bucket, want[i-1].Agent,
				want[i-1].Bucket)
		}
	}
	cfg.Seed++
	if next := round.BuildContributions(all, &plan, &cfg); slices.Equal(next, want) {
		t.Error("another seed gives the same buckets")
	}
}

// TestFactors checks, for each kind of exchange, that agent weights are applied either in the step size or in the
// server's average.
func TestFactors(t *testing.T) {
	for _, tt := range []struct {
		exchange      spec.ExchangeKind
		weighting     spec.WeightPlacement
		factor, scale float64
	}{
		{spec.ExchangeParameters, spec.WeightInStepSize, 2, 1}, {spec.ExchangeParameters, spec.WeightInServerMean, 3,
			1},
		{spec.ExchangeGradient, spec.WeightInStepSize, 3, -0.25}, {spec.ExchangeGradient, spec.WeightInServerMean, 3,
			-0.25},
	} {
		p := round.Plan{Kind: wire.KindTraining, Exchange: tt.exchange, ServerStepSize: 0.25}
		if f, s := p.ContributionFactor(tt.weighting, 2, 1.5, 0), p.UpdateScale(); f != tt.factor || s != tt.scale ||
			p.ContributionFactor(tt.weighting, 2, 1.5, 0.5) != 2*tt.factor {
			t.Errorf("%s, %s: factor %v and scale %v, want %v and %v", tt.exchange, tt.weighting, f, s, tt.factor,
				tt.scale)
		}
	}
}
