package survey

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

// ColumnSummary describes the values of a column or an input.
type ColumnSummary struct {
	Name       string `json:"name"`
	FileColumn string `json:"in,omitempty"` // name of the column in the file, if it differs from Name
	Unit       string `json:"unit,omitempty"`
	Used       uint64 `json:"used"` // number of used values
	Missing    uint64 `json:"missing"`
	Unused     uint64 `json:"unused"` // number of values that cannot be used
	// Min, Mean, Sigma and Max describe the used values if they are numbers. Sigma is the population standard
	// deviation.
	Min   float64 `json:"min"`
	Mean  float64 `json:"mean"`
	Sigma float64 `json:"sigma"`
	Max   float64 `json:"max"`
	// Histogram contains the counts of up to 512 sampled values between Min and Max. If Texts is set, it contains the
	// count of each text. Texts are the classes of an input, or the first texts of a column that contains mostly texts.
	Histogram []int    `json:"histogram"`
	Texts     []string `json:"texts,omitempty"`
}

const (
	// MaxHistogramSample is the maximum number of sampled values for the histogram of a column.
	MaxHistogramSample = 512
	// cellsOfHistogram is the number of cells of a histogram.
	cellsOfHistogram = 16
)

// runningStats computes statistics of a stream of numbers.
type runningStats struct {
	Count                   uint64
	lowest, highest         extremeValue
	mean, squaredDeviations float64
	sample                  ReservoirSample[float64]
}

func (m *runningStats) AddValue(v float64) {
	if m.Count++; m.Count == 1 {
		m.lowest.sign, m.highest.sign = -1, 1
	}
	m.lowest.addValue(v)
	m.highest.addValue(v)
	d := v - m.mean
	m.mean += d / float64(m.Count)
	m.squaredDeviations += d * (v - m.mean)
	m.sample.AddValue(v)
}

func (m *runningStats) writeToSummary(s *ColumnSummary) {
	s.Used = m.Count
	if m.Count == 0 {
		return
	}
	low, high := m.lowest.value, m.highest.value
	s.Min, s.Mean, s.Max = low, clampToFinite(m.mean), high
	s.Sigma = clampToFinite(math.Sqrt(m.squaredDeviations / float64(m.Count)))
	s.Histogram = make([]int, cellsOfHistogram)
	width := high/cellsOfHistogram - low/cellsOfHistogram // divided first, so that the difference does not overflow
	for _, v := range m.sample.All {
		cell := 0
		if width > 0 {
			cell = int(min((v-low)/width, cellsOfHistogram-1))
		}
		s.Histogram[cell]++
	}
}

// clampToFinite replaces infinities by the largest finite numbers and NaN by 0, because JSON cannot represent them.
func clampToFinite(v float64) float64 {
	if math.IsNaN(v) { // NaN results from both positive and negative overflow
		return 0
	}
	return max(min(v, math.MaxFloat64), -math.MaxFloat64)
}

// ReservoirSample is a random sample of bounded size. Until it is full, it contains all added values.
type ReservoirSample[E any] struct {
	All       []E
	SeenCount int
	draw      *rand.Rand
}

// AddValue adds a value to the sample. If the sample is full, the value either replaces a random value of the sample or
// is dropped.
func (s *ReservoirSample[E]) AddValue(e E) {
	s.SeenCount++
	if len(s.All) < MaxHistogramSample {
		s.All = append(s.All, e)
		return
	}
	if s.draw == nil {
		s.draw = rand.New(rand.NewPCG(1, 2)) // fixed seed, so that the sample is reproducible
	}
	if i := s.draw.IntN(s.SeenCount); i < MaxHistogramSample {
		s.All[i] = e
	}
}

// MaxDistinctTexts is the maximum number of distinct texts stored per column.
const MaxDistinctTexts = 16

// textCounts counts texts. It stores the first distinct texts with the number of occurrences of each.
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
		// Copy the text, because the cell refers to the memory of its whole record.
		t.distinctTexts, t.counts = append(t.distinctTexts, strings.Clone(text)), append(t.counts, 0)
	}
	if i >= 0 {
		t.counts[i]++
	}
}
