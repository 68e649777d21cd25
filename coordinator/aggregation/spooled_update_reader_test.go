package aggregation

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/codec"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// TestStrips checks for each rule and codec that aggregating in strips yields the same bits as aggregating whole
// vectors. An update that changes on disk during the aggregation is detected.
func TestStrips(t *testing.T) {
	const d = strip + strip/2 + 3
	for _, word := range spec.Codecs() {
		c, rng := codec.ForName[float32](word), rand.New(rand.NewPCG(1, 2))
		if codec.DecodesOnlyWholeVectors(c) {
			continue // such updates are decoded first: see TestUnpack
		}
		if elements, _ := c.IndependentUnitSize(); strip%elements != 0 {
			t.Fatalf("%s: a strip of %d elements is no whole number of units of %d", word, strip, elements)
		}
		dir := t.TempDir()
		spool, err := store.LocalDisk.OpenSpool(dir, store.RoundSpoolID{}, func(problem string) { t.Error(problem) })
		if err != nil {
			t.Fatal(err)
		}
		defer spool.Close()
		var set []round.Contribution
		var whole rule.InMemoryUpdates[float32]
		for k := range 5 {
			v := make([]float32, d)
			for i := range v {
				v[i] = float32(rng.NormFloat64())
			}
			p := c.Append(nil, v, rng)
			id := fmt.Sprint(word, k)
			if err := errors.Join(c.Decode(v, p), spool.Put(store.SpoolEntry{Agent: id,
				PayloadDigest: wire.BlobDigest(p),
				PayloadSize:   int64(len(p))}, p)); err != nil {
				t.Fatal(err)
			}
			whole = append(whole, v)
			set = append(set, round.Contribution{Agent: wire.AgentID(id),
				UpdateMetadata: rule.UpdateMetadata{Bucket: 13 * k, AgentIDRank: k, DrawCount: 1,
					ContributionFactor: 1 + float64(k)/8,
					Norm:               math.Sqrt(learner.AddSquares(0, v))}})
		}
		for _, name := range rule.Names() {
			want, s := make([]float64, d), setOf(name, set, whole)
			fold := rule.New[float32](ruleOf(name))
			if _, err := fold.AssessUpdates(&s); err != nil {
				t.Fatal(err)
			}
			if err := fold.AggregatePart(want, &s, 0); err != nil {
				t.Fatal(err)
			}
			if got, err := foldStrips(name, spool, set, c, d); err != nil || !slices.Equal(got, want) {
				t.Errorf("%s of %s: other bits than those of the whole updates, error %v", name, word, err)
			}
		}
		logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
		if err != nil || len(logs) != 1 {
			t.Fatal(logs, err)
		}
		for _, change := range []func(p []byte){
			func(p []byte) { p[0] ^= 1 }, // changes one bit; the number stays finite
			func(p []byte) { copy(p, "\xff\xff\xff\xff") },
		} {
			damage(t, logs[0], change)
			for _, name := range rule.Names() {
				_, err := foldStrips(name, spool, set, c, d)
				if !errors.As(err, new(*store.CorruptError)) || !errors.Is(err, round.ErrSpoolDamaged) {
					t.Errorf("%s of %s: an update was changed on disk: error %v", name, word, err)
				}
			}
		}
	}
}

// ruleOf returns a configuration of the named aggregation rule whose parameters change the result.
func ruleOf(name string) rule.Config {
	c := rule.Config{Rule: name, TrimShare: 0.2}
	switch name {
	case rule.MultiKrum:
		c.AveragedUpdates = 2
	case rule.CenteredClipping:
		c.ClippingRadius = 100
	}
	return c
}

func setOf(name string, set []round.Contribution, from rule.UpdateReader[float32]) rule.UpdateSet[float32] {
	s := rule.UpdateSet[float32]{UpdateScale: 1, UpdateReader: from,
		RuleState: rule.NewState(rule.New[float32](ruleOf(name)),
			from.Len())}
	for _, v := range s.RuleState {
		for j := range v {
			v[j] = float64(j%7) / 8
		}
	}
	for _, x := range set {
		s.Updates = append(s.Updates, x.UpdateMetadata)
	}
	return s
}

func foldStrips(name string, spool *store.UpdateSpool, set []round.Contribution, c codec.Codec[float32],
	d int) ([]float64,
	error) {
	u, dst := &spooledUpdateReader{packedSpool: packedSpool{spool, c}, contributions: set, dimension: d},
		make([]float64, d)
	fold, s := rule.New[float32](ruleOf(name)), setOf(name, set, u)
	if _, err := fold.AssessUpdates(&s); err != nil {
		return nil, err
	}
	return dst, u.forEachStrip(func(from, to int) error { return fold.AggregatePart(dst[from:to], &s, from) })
}

// damage changes a number near the end of a log file.
func damage(t *testing.T, log string, change func(number []byte)) {
	t.Helper()
	p, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	change(p[len(p)-400:])
	if err := os.WriteFile(log, p, 0o600); err != nil {
		t.Fatal(err)
	}
}
