package rule_test

import (
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/fedmesh/fedmesh/round/rule"
)

const manyUpdates = 1000

// made is an UpdateReader of a thousand updates that are computed when they are read, so that no update is kept in
// memory.
type made struct {
	d     int
	table []float32 // values of the updates; nil means that each element of update k has the value k
	row   []float32
}

func (m *made) Len() int { return m.d }

func (m *made) fill(dst []float32, k, from int) {
	if m.table == nil {
		for i := range dst {
			dst[i] = float32(k)
		}
		return
	}
	n := copy(dst, m.table[(k*7919+from)%len(m.table):])
	copy(dst[n:], m.table)
}

func (m *made) ForEachUpdate(from, to int, take func(k int, v []float32)) error {
	for k := range manyUpdates {
		m.fill(m.row[:to-from], k, from)
		take(k, m.row[:to-from])
	}
	return nil
}

func (m *made) ReadColumns(from int, rows [][]float32) error {
	for k := range rows {
		m.fill(rows[k], k, from)
	}
	return nil
}

// foldMany aggregates the updates in parts, as the coordinator does.
func foldMany(tb testing.TB, c rule.Config, m *made) {
	tb.Helper()
	const strip = 1 << 15
	m.row = make([]float32, strip)
	set := rule.UpdateSet[float32]{UpdateScale: 1, UpdateReader: m}
	for k := range manyUpdates {
		set.Updates = append(set.Updates, rule.UpdateMetadata{Bucket: k * rule.BucketCount / manyUpdates,
			AgentIDRank:        k,
			DrawCount:          1,
			ContributionFactor: 1,
			Norm:               300})
	}
	r, dst := rule.New[float32](c), make([]float64, strip)
	set.RuleState = rule.NewState(r, m.d)
	_, err := r.AssessUpdates(&set)
	for from := 0; from < m.d && err == nil; from += strip {
		err = r.AggregatePart(dst[:min(strip, m.d-from)], &set, from)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

var manyConfigs = []rule.Config{{Rule: rule.Mean}, {Rule: rule.Median}, {Rule: rule.TrimmedMean, TrimShare: 0.2},
	{Rule: rule.GeometricMedian}, {Rule: rule.CenteredClipping, ClippingRadius: 100}, {Rule: rule.Krum,
		MaxByzantineUpdates: 200},
	{Rule: rule.MultiKrum, MaxByzantineUpdates: 200, AveragedUpdates: 500}}

// BenchmarkMany reports the duration and the memory of each rule on 1,000 updates of 100,000 elements.
func BenchmarkMany(b *testing.B) {
	rng := rand.New(rand.NewPCG(23, 24))
	m := &made{d: 100_000, table: make([]float32, 1<<20)}
	for i := range m.table {
		m.table[i] = float32(rng.NormFloat64())
	}
	for _, c := range manyConfigs {
		b.Run(c.Rule, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				foldMany(b, c, m)
			}
			b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/fold")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// TestMemory checks that each rule allocates at most 40 MB plus three times the size of the model, for 1,000 updates of
// 100,000 elements. It tests Krum with fewer elements, since that rule takes much longer.
func TestMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("a thousand updates, seven times over")
	}
	for _, c := range manyConfigs {
		m := &made{d: 100_000}
		if c.Rule == rule.Krum || c.Rule == rule.MultiKrum {
			m.d = 2_000
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		foldMany(t, c, m)
		runtime.ReadMemStats(&after)
		if used, most := after.TotalAlloc-before.TotalAlloc, uint64(40e6+3*8*m.d); used > most {
			t.Errorf("%s: %d bytes, want at most %d", c.Rule, used, most)
		}
	}
}
