package codec

import (
	"encoding/hex"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"github.com/fedmesh/fedmesh/wire"
)

// TestTopKAgainstSort checks that the codec sends the elements that come first in a stable sort by magnitude. Many
// elements have equal magnitudes.
func TestTopKAgainstSort(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range 100 {
		c, v := topKCodec[float32]{keptElementShare: rng.Float64() / 2}, make([]float32, n)
		order := make([]int, n)
		for i := range v {
			v[i], order[i] = float32(rng.IntN(9)-4), i
		}
		sort.SliceStable(order, func(a, b int) bool {
			return math.Abs(float64(v[order[a]])) > math.Abs(float64(v[order[b]]))
		})
		want, got := make([]float32, n), make([]float32, n)
		for _, i := range order[:c.pairCount(n)] {
			want[i] = v[i]
		}
		p := c.Append(nil, v, nil)
		if err := c.Decode(got, p); err != nil || !slices.Equal(got, want) || len(p) != c.EncodedSize(n) {
			t.Fatalf("%v, %v of it, became %v, %v; want %v", v, c.keptElementShare, got, err, want)
		}
	}
}

func TestTopKGolden(t *testing.T) {
	c := topKCodec[float32]{keptElementShare: 0.4}
	p := c.Append(nil, []float32{1, -2, 0.5, 2, -2}, nil)
	if want := "01000000000000c0" + "0300000000000040"; hex.EncodeToString(p) != want {
		t.Errorf("packed as %x, want %s", p, want)
	}
	for n, want := range map[int]int{0: 0, 1: 8, 2: 8, 3: 8, 4: 16, 258: 8 * 103} {
		if got := c.EncodedSize(n); got != want {
			t.Errorf("%d elements have %d bytes, want %d", n, got, want)
		}
	}
}

// TestTopKRefuses checks that decoding rejects indices that are out of range, duplicate or not in ascending order, and
// non-finite elements.
func TestTopKRefuses(t *testing.T) {
	c := topKCodec[float32]{keptElementShare: 0.4}
	for text, finite := range map[string]bool{
		"03000000000000c0" + "0100000000000040": true,
		"01000000000000c0" + "0100000000000040": true,
		"01000000000000c0" + "0500000000000040": true,
		"01000000000000c0" + "ffffffff00000040": true,
		"01000000000000c0" + "030000000000c07f": false,
		"010000000000807f" + "0300000000000040": false,
	} {
		p, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Decode(make([]float32, 5), p); err == nil || errors.Is(err, wire.ErrNotFinite) == finite {
			t.Errorf("%s: %v", text, err)
		}
	}
}
