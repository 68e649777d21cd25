package wire

import "math"

// The forms of an evaluation.
const (
	// ResidualHistogramBins is the number of bins of a histogram of residuals.
	ResidualHistogramBins = 64
	// MaxConfusionClasses bounds the classes of which it is told which was taken for which.
	MaxConfusionClasses = 64
	// MaxExternalMetrics bounds the figures of an evaluation.
	MaxExternalMetrics = 16
)

// MaxRowContribution bounds what a row adds to a sum: sums over all agents, and their squares, must be finite.
const MaxRowContribution = 1e100

// Evaluation is what an agent says of a model on the rows that it holds out: sums, which add up over agents.
type Evaluation struct {
	Run          RunID // of the model; 0 = nothing is said
	ModelVersion ModelVersion
	Rows         uint32  // 0 = fewer than are to be spoken of: nothing else is said
	RiskSum      float64 // Σ of the rows' risks, without the ridge
	// Of a regression, in the units in which the model was trained: Σ (z − y)², Σ y and Σ y², and how many |z − y| are
	// in each of ResidualHistogramBins bins (docs/PROTOCOL.md); no bins of classes.
	SSE, TargetSum, TargetSquareSum float64
	ResidualHistogram               []uint32
	// Of classes: how many rows were taken for their class, and [actual,predicted] for up to MaxConfusionClasses of
	// them.
	CorrectRows     uint32
	ConfusionMatrix []uint32
	// ExternalMetrics are what the program that trains an external model says beside the risk, ascending by name: it
	// alone knows what is in them. Not nil, though perhaps empty, exactly of an external model with rows; there are no
	// bins, hits and cells then.
	ExternalMetrics []ExternalMetric
}

// ExternalMetric is a figure of a program.
type ExternalMetric struct {
	Name string  // as that of a BodySection
	Sum  float64 // Σ over the rows
}

// IsValidForRows reports whether a figure over so many rows may be told.
func (f *ExternalMetric) IsValidForRows(rows uint32) bool {
	return checkName(f.Name, MaxSectionName,
		isSectionNameByte) == nil && math.Abs(f.Sum) <= MaxRowContribution*float64(rows)
}

// IsForModel reports whether the evaluation is of that version of a model of a run.
func (m *Evaluation) IsForModel(run RunID, version ModelVersion) bool {
	return m.Run != 0 && m.Run == run && m.ModelVersion == version
}

// evaluationCodec is the section of a hello.
func (m *Evaluation) evaluationCodec() sectionCodec {
	return sectionCodec{"evaluation", IgnoreUnknownSection, func(w *writer) {
		if m.Run == 0 {
			return
		}
		w.u64(uint64(m.Run))
		w.u64(uint64(m.ModelVersion))
		w.u32(m.Rows)
		if m.Rows == 0 {
			return
		}
		w.f64(m.RiskSum)
		w.f64(m.SSE)
		w.f64(m.TargetSum)
		w.f64(m.TargetSquareSum)
		w.u32s(m.ResidualHistogram)
		w.u32(m.CorrectRows)
		w.u32s(m.ConfusionMatrix)
	}, m.readFields}
}

func (m *Evaluation) readFields(r *reader) {
	*m = Evaluation{Run: RunID(r.u64()), ModelVersion: ModelVersion(r.u64()), Rows: r.u32()}
	if m.Rows == 0 {
		return
	}
	m.RiskSum, m.SSE, m.TargetSum, m.TargetSquareSum = r.f64("risk"), r.f64("squared residuals"), r.f64("targets"),
		r.f64("squares")
	m.ResidualHistogram = r.u32s("residuals", ResidualHistogramBins)
	m.CorrectRows = r.u32()
	m.ConfusionMatrix = r.u32s("confusion", MaxConfusionClasses*MaxConfusionClasses)
	if r.err != nil {
		return
	}
	classes := 0
	for classes*classes < len(m.ConfusionMatrix) {
		classes++
	}
	var hits uint64
	for c := range classes {
		if at := c * (classes + 1); at < len(m.ConfusionMatrix) {
			hits += uint64(m.ConfusionMatrix[at])
		}
	}
	most := MaxRowContribution * float64(m.Rows)
	switch n := len(m.ResidualHistogram); {
	case math.Abs(m.RiskSum) > most || m.SSE > most || math.Abs(m.TargetSum) > most || m.TargetSquareSum > most,
		m.SSE < 0 || m.TargetSquareSum < 0 || m.CorrectRows > m.Rows:
		r.failf("sums that no %d rows have", m.Rows)
	case n != 0 && (n != ResidualHistogramBins || sumCounts(m.ResidualHistogram) != uint64(m.Rows)):
		r.failf("%d residuals in %d bins, of %d rows", sumCounts(m.ResidualHistogram), n, m.Rows)
	case classes*classes != len(m.ConfusionMatrix),
		classes > 0 && (sumCounts(m.ConfusionMatrix) != uint64(m.Rows) || hits != uint64(m.CorrectRows)):
		r.failf("%d rows in %d cells, want %d, with %d hits", sumCounts(m.ConfusionMatrix), len(m.ConfusionMatrix),
			m.Rows,
			m.CorrectRows)
	}
}

// externalMetricsCodec is a section of a hello beside that of the evaluation, which comes before it.
func (m *Evaluation) externalMetricsCodec() sectionCodec {
	return sectionCodec{"evaluation_figures", IgnoreUnknownSection, func(w *writer) {
		if m.ExternalMetrics == nil {
			return
		}
		w.u32(uint32(len(m.ExternalMetrics)))
		for _, f := range m.ExternalMetrics {
			w.str(f.Name)
			w.f64(f.Sum)
		}
	}, func(r *reader) {
		if m.Rows == 0 || len(m.ResidualHistogram) > 0 || len(m.ConfusionMatrix) > 0 || m.CorrectRows > 0 {
			r.failf("figures of a model that is not external, or without rows")
		}
		m.ExternalMetrics = make([]ExternalMetric, r.listLength("figures", MaxExternalMetrics, 10))
		last := ""
		for i := range m.ExternalMetrics {
			last = r.ascendingName("figure", last)
			m.ExternalMetrics[i] = ExternalMetric{last, r.f64("figure")}
			if r.err == nil && !m.ExternalMetrics[i].IsValidForRows(m.Rows) {
				r.failf("figure %s: a sum that no %d rows have", last, m.Rows)
			}
		}
	}}
}

func sumCounts(counts []uint32) (n uint64) {
	for _, c := range counts {
		n += uint64(c)
	}
	return n
}
