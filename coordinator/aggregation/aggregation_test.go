package aggregation

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/codec"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// TestSpread checks the spread of two updates for different scales and signs of the factors, and of a single update.
func TestSpread(t *testing.T) {
	spool, err := store.LocalDisk.OpenSpool(t.TempDir(), store.RoundSpoolID{},
		func(problem string) { t.Error(problem) })
	if err != nil {
		t.Fatal(err)
	}
	defer spool.Close()
	for agent, v := range map[string][]float32{"a": {3, 0}, "b": {0, 4}} {
		p := wire.AppendVector(nil, v)
		if err := spool.Put(store.SpoolEntry{Agent: agent, PayloadDigest: wire.BlobDigest(p),
			PayloadSize: int64(len(p))},
			p); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct{ scale, a, b, want float64 }{
		{1, 1, 1, 2.5},    // both updates are 2.5 from the mean (1.5, 2)
		{-0.1, 1, 1, 2.5}, // negative scale, as for gradients
		{1, 3, 1, math.Sqrt(0.75*(0.75*0.75+1) + 0.25*(2.25*2.25+9))},
		{1, 1, 0, 0},
	} {
		set := []round.Contribution{{Agent: "a", UpdateMetadata: rule.UpdateMetadata{DrawCount: 2,
			ContributionFactor: tt.a,
			Norm:               3}},
			{Agent: "b", UpdateMetadata: rule.UpdateMetadata{DrawCount: 1, ContributionFactor: tt.b, Norm: 4}}}
		u := &spooledUpdateReader{packedSpool: packedSpool{spool, codec.ForName[float32](spec.CodecRaw)},
			contributions: set,
			dimension:     2}
		d := make([]float64, 2)
		shares := []rule.UpdateMetadata{set[0].UpdateMetadata, set[1].UpdateMetadata}
		all := rule.UpdateSet[float32]{Updates: shares, UpdateScale: tt.scale, UpdateReader: u}
		by := rule.New[float32](rule.DefaultConfig())
		err := u.forEachStrip(func(int, int) error {
			_, err := by.AssessUpdates(&all)
			return errors.Join(err, by.AggregatePart(d, &all, 0))
		})
		if got := updateSpread(set, addSquaredMeanElements(0, set, d, tt.scale)); err != nil ||
			math.Abs(got-tt.want) > 1e-12 {
			t.Errorf("scale %v, factors %v and %v: %v, error %v; want %v", tt.scale, tt.a, tt.b, got, err, tt.want)
		}
	}
}

// TestPackedUpdates checks that a rule yields the same result for encoded updates as for decoded ones.
func TestPackedUpdates(t *testing.T) {
	spool, err := store.LocalDisk.OpenSpool(t.TempDir(), store.RoundSpoolID{},
		func(problem string) { t.Error(problem) })
	if err != nil {
		t.Fatal(err)
	}
	defer spool.Close()
	for _, word := range spec.Codecs() {
		if codec.DecodesOnlyWholeVectors(codec.ForName[float32](word)) {
			continue
		}
		packedUpdates(t, spool, word, 70_001)
		packedUpdates(t, spool, word, 70_002)
	}
}

func packedUpdates(t *testing.T, spool *store.UpdateSpool, word spec.Codec, d int) {
	t.Helper()
	c, rng := codec.ForName[float32](word), rand.New(rand.NewPCG(1, 2))
	var set []round.Contribution
	var whole [][]float32
	for k := range 3 {
		v := make([]float32, d)
		for i := range v {
			v[i] = float32(rng.NormFloat64())
		}
		p := c.Append(nil, v, rng)
		id := fmt.Sprint(word, d, k)
		if err := spool.Put(store.SpoolEntry{Agent: id, PayloadDigest: wire.BlobDigest(p), PayloadSize: int64(len(p))},
			p); err != nil {
			t.Fatal(err)
		}
		set = append(set, round.Contribution{Agent: wire.AgentID(id)})
		if err := c.Decode(v, p); err != nil {
			t.Fatal(err)
		}
		whole = append(whole, v)
	}
	u := &spooledUpdateReader{packedSpool: packedSpool{spool, c}, contributions: set, dimension: d}
	for _, from := range []int{0, 255, 256, 1000, d - 7} {
		rows := [][]float32{make([]float32, 7), make([]float32, 7), make([]float32, 7)}
		if err := u.ReadColumns(from, rows); err != nil {
			t.Fatal(err)
		}
		for k := range rows {
			if !slices.Equal(rows[k], whole[k][from:from+7]) {
				t.Errorf("%s: columns %d and on of update %d are %v, want %v", word, from, k, rows[k],
					whole[k][from:from+7])
			}
		}
	}
}
