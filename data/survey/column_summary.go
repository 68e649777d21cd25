package survey

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

// ColumnSummary describes the values of a column, or of an input.
type ColumnSummary struct {
	Name       string `json:"name"`
	FileColumn string `json:"in,omitempty"` // its name in the file, if that is another
	Unit       string `json:"unit,omitempty"`
	Used       uint64 `json:"used"` // values
	Missing    uint64 `json:"missing"`
	Unused     uint64 `json:"unused"` // that are there and cannot be used
	// The next four are of those used, if they are numbers. Sigma is that of the values themselves, divided by their
	// number.
	Min   float64 `json:"min"`
	Mean  float64 `json:"mean"`
	Sigma float64 `json:"sigma"`
	Max   float64 `json:"max"`
	// Histogram counts values between Min and Max, at most 512 of them; or those of each of Texts, the classes of an
	// input or the first texts of a column whose values are mostly no numbers.
	Histogram []int    `json:"histogram"`
	Texts     []string `json:"texts,omitempty"`
}

const (
	// MaxHistogramSample is how many values of a column are kept for its histogram.
	MaxHistogramSample = 512
	// cellsOfHistogram is how many cells it has.
	cellsOfHistogram = 16
)

// runningStats describes numbers that come one after the other.
type runningStats struct {
	Count                              uint64
	low, high, mean, squaredDeviations float64
	sample                             ReservoirSample[float64]
}

func (m *runningStats) AddValue(v float64) {
	if m.Count++; m.Count == 1 {
		m.low, m.high = v, v
	}
	m.low, m.high = min(m.low, v), max(m.high, v)
	d := v - m.mean
	m.mean += d / float64(m.Count)
	m.squaredDeviations += d * (v - m.mean)
	m.sample.AddValue(v)
}

// writeToSummary adds what was measured to a summary.
func (m *runningStats) writeToSummary(s *ColumnSummary) {
	s.Used = m.Count
	if m.Count == 0 {
		return
	}
	s.Min, s.Mean, s.Max = m.low, clampToFinite(m.mean), m.high
	s.Sigma = clampToFinite(math.Sqrt(m.squaredDeviations / float64(m.Count)))
	s.Histogram = make([]int, cellsOfHistogram)
	width := m.high/cellsOfHistogram - m.low/cellsOfHistogram // which does not overflow
	for _, v := range m.sample.All {
		cell := 0
		if width > 0 {
			cell = int(min((v-m.low)/width, cellsOfHistogram-1))
		}
		s.Histogram[cell]++
	}
}

// clampToFinite has sums of the largest numbers be finite, as JSON needs them.
func clampToFinite(v float64) float64 {
	if math.IsNaN(v) { // they overflowed both ways
		return 0
	}
	return max(min(v, math.MaxFloat64), -math.MaxFloat64)
}

// ReservoirSample is a random sample of all values that were added: all of them as long as there is room.
type ReservoirSample[E any] struct {
	All       []E
	SeenCount int
	draw      *rand.Rand
}

// AddValue adds a value to the sample. Once the sample is full, it replaces a random value or is left out.
func (s *ReservoirSample[E]) AddValue(e E) {
	s.SeenCount++
	if len(s.All) < MaxHistogramSample {
		s.All = append(s.All, e)
		return
	}
	if s.draw == nil {
		s.draw = rand.New(rand.NewPCG(1, 2)) // the same elements of the same values
	}
	if i := s.draw.IntN(s.SeenCount); i < MaxHistogramSample {
		s.All[i] = e
	}
}

// MaxDistinctTexts is the maximum number of different texts of a column that are kept.
const MaxDistinctTexts = 16

// textCounts counts texts, of which it knows the first.
type textCounts struct {
	distinctTexts []string
	counts        []int
	Count         uint64
}

func (t *textCounts) AddText(text string) {
	t.Count++
	i := slices.Index(t.distinctTexts, text)
	if i < 0 && len(t.distinctTexts) < MaxDistinctTexts {
		i = len(t.distinctTexts)
		// a cell holds its record
		t.distinctTexts, t.counts = append(t.distinctTexts, strings.Clone(text)), append(t.counts, 0)
	}
	if i >= 0 {
		t.counts[i]++
	}
}
