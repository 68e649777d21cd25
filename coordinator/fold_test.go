package coordinator

import (
	"crypto/sha256"
	"math"
	"testing"

	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// TestSpread of two updates around their mean, whatever the scale and the sign
// of the coefficients, and of a single one.
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
	for _, tt := range []struct{ a, b, want float64 }{
		{0.5, 0.5, 2.5},   // both are 2.5 from (1.5, 2)
		{-0.1, -0.1, 2.5}, // as gradients
		{0.75, 0.25, math.Sqrt(0.75*(0.75*0.75+1) + 0.25*(2.25*2.25+9))},
		{1, 0, 0},
	} {
		acc := make([]float64, 2)
		_, got, err := addAll[float32](acc, spool,
			[]round.Contribution{{Agent: "a", Coefficient: tt.a}, {Agent: "b", Coefficient: tt.b}})
		if err != nil || math.Abs(got-tt.want) > 1e-12 {
			t.Errorf("with coefficients %v and %v: %v, error %v; want %v", tt.a, tt.b, got, err, tt.want)
		}
	}
}
