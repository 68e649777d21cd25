package wire

import "math"

// Limits on the size of an evaluation.
const (
	// ResidualHistogramBins is the number of bins of a histogram of residuals.
	ResidualHistogramBins = 64
	// MaxConfusionClasses is the maximum number of classes in a confusion matrix.
	MaxConfusionClasses = 64
	// MaxExternalMetrics is the maximum number of external metrics in an evaluation.
	MaxExternalMetrics = 16
)

// MaxRowContribution is the maximum absolute value that one row may add to a sum. It ensures that the sums over all
// agents, and their squares, are finite.
const MaxRowContribution = 1e100

// Evaluation contains an agent's results for a model on the agent's held-out rows. All results are sums over rows, so
// that the results of several agents can be added.
type Evaluation struct {
	Run          RunID // run of the evaluated model; 0 means no evaluation
	ModelVersion ModelVersion
	Rows         uint32  // number of held-out rows; 0 means that there are too few rows and all results are 0
	RiskSum      float64 // sum of the losses of the rows, without the ridge penalty
	// SSE, TargetSum and TargetSquareSum are the sums Σ(z − y)², Σy and Σy² over the rows of a regression, with
	// prediction z and target y in units of the training data. ResidualHistogram counts the values |z − y| in each of
	// ResidualHistogramBins bins (docs/PROTOCOL.md) and is empty for classification.
	SSE, TargetSum, TargetSquareSum float64
	ResidualHistogram               []uint32
	// CorrectRows is the number of correctly classified rows. ConfusionMatrix contains the number of rows at index
	// [actual class, predicted class], for up to MaxConfusionClasses classes.
	CorrectRows     uint32
	ConfusionMatrix []uint32
	// ExternalMetrics holds the metrics of an external training program, ascending by name. It is non-nil, but possibly
	// empty, only for an external model with rows. The histogram, CorrectRows and ConfusionMatrix are then empty.
	ExternalMetrics []ExternalMetric
}

// ExternalMetric is a metric from an external program.
type ExternalMetric struct {
	Name string  // name of the metric, with the same characters as BodySection.Name
	Sum  float64 // sum of the metric over the rows
}

// IsValidForRows reports whether the metric has a valid name and a valid sum for the given number of rows.
func (f *ExternalMetric) IsValidForRows(rows uint32) bool {
	return checkName(f.Name, MaxSectionName,
		isSectionNameByte) == nil && math.Abs(f.Sum) <= MaxRowContribution*float64(rows)
}

// IsForModel reports whether the evaluation belongs to the given version of a run's model.
func (m *Evaluation) IsForModel(run RunID, version ModelVersion) bool {
	return m.Run != 0 && m.Run == run && m.ModelVersion == version
}

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
		r.failf("the evaluation sums are out of range for %d rows", m.Rows)
	case n != 0 && (n != ResidualHistogramBins || sumCounts(m.ResidualHistogram) != uint64(m.Rows)):
		r.failf("histogram has %d residuals in %d bins, which does not match %d rows",
			sumCounts(m.ResidualHistogram), n, m.Rows)
	case classes*classes != len(m.ConfusionMatrix),
		classes > 0 && (sumCounts(m.ConfusionMatrix) != uint64(m.Rows) || hits != uint64(m.CorrectRows)):
		r.failf("confusion matrix has %d rows in %d cells, but the evaluation has %d rows with %d correct",
			sumCounts(m.ConfusionMatrix), len(m.ConfusionMatrix),
			m.Rows,
			m.CorrectRows)
	}
}

// externalMetricsCodec returns the codec of the section "evaluation_figures" in a hello message. This section follows
// the section "evaluation".
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
			r.failf("external metrics require an external model and at least one row")
		}
		m.ExternalMetrics = make([]ExternalMetric, r.listLength("external metrics", MaxExternalMetrics, 10))
		last := ""
		for i := range m.ExternalMetrics {
			last = r.ascendingName("external metric", last)
			m.ExternalMetrics[i] = ExternalMetric{last, r.f64("external metric")}
			if r.err == nil && !m.ExternalMetrics[i].IsValidForRows(m.Rows) {
				r.failf("external metric %s: sum is out of range for %d rows", last, m.Rows)
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
