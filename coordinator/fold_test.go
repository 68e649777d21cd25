package coordinator

import (
	"crypto/sha256"
	"math"
	"testing"

	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// TestSpread of two updates around their mean, whatever the scale and the sign
// of the factors, and of a single one.
func TestSpread(t *testing.T) {
	spool, err := store.OpenSpool(t.TempDir(), store.SpoolID{}, func(problem string) { t.Error(problem) })
	if err != nil {
		t.Fatal(err)
	}
	defer spool.Close()
	for agent, v := range map[string][]float32{"a": {3, 0}, "b": {0, 4}} {
		p := wire.AppendVector(nil, v)
		if err := spool.Put(t.Context(), store.Entry{Agent: agent, Digest: sha256.Sum256(p), Size: int64(len(p))},
			p); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct{ scale, a, b, want float64 }{
		{1, 1, 1, 2.5},    // both are 2.5 from (1.5, 2)
		{-0.1, 1, 1, 2.5}, // as gradients
		{1, 3, 1, math.Sqrt(0.75*(0.75*0.75+1) + 0.25*(2.25*2.25+9))},
		{1, 1, 0, 0},
	} {
		set := []round.Contribution{{Agent: "a", Share: rule.Share{Times: 2, Factor: tt.a}},
			{Agent: "b", Share: rule.Share{Times: 1, Factor: tt.b}}}
		u, d := &updates{spool: spool, set: set, v: make([]float32, 2)}, make([]float64, 2)
		shares := []rule.Share{set[0].Share, set[1].Share}
		all := rule.Set[float32]{Shares: shares, Scale: tt.scale, Source: u}
		err := rule.New[float32](rule.DefaultConfig()).Fold(d, all)
		if got := u.spread(d, tt.scale); err != nil || math.Abs(got-tt.want) > 1e-12 {
			t.Errorf("scale %v, factors %v and %v: %v, error %v; want %v", tt.scale, tt.a, tt.b, got, err, tt.want)
		}
	}
}
