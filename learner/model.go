package learner

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// Model computes the mean risk of an [Objective] over any number of rows, including the ridge penalty, and the gradient
// of the risk. The caller owns the parameters, as one flat vector. The model owns only scratch memory, which grows with
// the largest batch up to 32 rows.
type Model[T Float] struct {
	arch               Architecture
	parameterCount     int
	objective          Objective[T]
	reportedRiskFactor float64 // factor by which reported risks are multiplied
	// the objective, if it has a fast local step on one short row (see takeShortRowStep); otherwise nil
	rowStepper      *linearModel[T]
	kernels         vectorKernels[T]
	gradientScratch []T // buffer for the gradient of a step on more than one block of rows
}

// NewModel returns a model of the architecture. It returns the same errors as [Architecture.Validate].
func NewModel[T Float](a Architecture) (*Model[T], error) {
	if err := a.Validate(); err != nil {
		return nil, err
	}
	a.HiddenUnits = slices.Clone(a.HiddenUnits)
	m := &Model[T]{arch: a, parameterCount: a.ParameterCount(), objective: newObjective[T](a), reportedRiskFactor: 1,
		kernels: newLoopKernels[T]()}
	if l, ok := m.objective.(*linearModel[T]); ok && l.hasShortRows() {
		m.rowStepper = l
	}
	return m, nil
}

// Architecture returns the architecture of the model.
func (m *Model[T]) Architecture() Architecture { return m.arch }

// SetReportedRiskUnits makes Risk and Score report risks in the units of the data, for samples standardised by st. It
// multiplies the risks of a regression by the square of the target's scale. The threshold δ of the Huber loss is in
// units of that scale.
func (m *Model[T]) SetReportedRiskUnits(st Standardization) {
	if m.arch.Risk.StandardizesTarget() && m.arch.HasTarget() && len(st.Scale) > 0 {
		scale := st.Scale[len(st.Scale)-1]
		m.reportedRiskFactor = float64(scale * scale)
	}
}

// InitParameters sets w, of length d, to the initial parameters: see [Objective.InitParameters].
func (m *Model[T]) InitParameters(w []T, rng *rand.Rand) {
	m.checkVectorLength("w", w)
	clear(w)
	m.objective.InitParameters(w, rng)
}

// Gradient writes the gradient at w of the mean risk over the batch, including the gradient ρw of the ridge penalty, to
// grad. It returns the mean risk, including the ridge penalty (ρ/2)‖w‖². The gradients of blocks of 32 rows are added
// in order, and the gradient of the ridge penalty last. The vectors grad and w have length d and must not overlap. The
// risk of an empty batch is NaN.
func (m *Model[T]) Gradient(grad, w []T, b Batch[T]) float64 {
	m.checkVectorLength("grad", grad)
	m.checkBatchDimensions(w, b)
	clear(grad)
	n := b.Len()
	sum := 0.0
	for from := 0; from < n; from += rowBlockSize {
		block := b.rowBlock(from)
		sum += m.objective.Backward(w, block)
		m.objective.AddGradient(grad, block, 1/float64(n))
	}
	if m.arch.Ridge > 0 {
		m.kernels.axpy(T(m.arch.Ridge), w, grad)
	}
	return sum/float64(n) + m.ridgePenalty(w)
}

// Risk returns the mean risk over the batch at the parameters w, including the ridge penalty (ρ/2)‖w‖². The risk of an
// empty batch is NaN.
func (m *Model[T]) Risk(w []T, b Batch[T]) float64 {
	m.checkBatchDimensions(w, b)
	sum, n := 0.0, b.Len()
	for from := 0; from < n; from += rowBlockSize {
		sum = m.objective.AddRowRisks(sum, w, b.rowBlock(from))
	}
	return m.reportedRiskFactor * (sum/float64(n) + m.ridgePenalty(w))
}

// Score returns the score of the parameters w on all samples of s. The risk in the score includes the ridge penalty
// (ρ/2)‖w‖². Without samples all values are NaN.
func (m *Model[T]) Score(w []T, s *Samples[T]) Score {
	m.checkBatchDimensions(w, s.All())
	score := scoreFromSums(m.objective.SumScores(w, s), m.arch, s)
	score.Risk = m.reportedRiskFactor * (score.Risk + m.ridgePenalty(w))
	return score
}

// SumScores returns the score sums of the parameters w on all samples of s. The risk has the same units as in Score,
// but does not include the ridge penalty.
func (m *Model[T]) SumScores(w []T, s *Samples[T]) ScoreSums {
	m.checkBatchDimensions(w, s.All())
	t := m.objective.SumScores(w, s)
	t.RiskSum *= m.reportedRiskFactor
	return t
}

// ridgePenalty returns the ridge penalty (ρ/2)‖w‖² on the parameters w.
func (m *Model[T]) ridgePenalty(w []T) float64 {
	if m.arch.Ridge == 0 {
		return 0
	}
	return 0.5 * m.arch.Ridge * m.kernels.squaredNorm(w)
}

func (m *Model[T]) checkBatchDimensions(w []T, b Batch[T]) {
	m.checkVectorLength("w", w)
	if b.tableReader != nil && b.tableReader.samples.featureCount == m.arch.Inputs {
		return
	}
	if b.tableReader != nil || len(b.X) != len(b.Y)*m.arch.Inputs {
		panic(fmt.Sprintf("learner: batch has %d targets and %d features, but the model has %d inputs",
			len(b.Y), len(b.X), m.arch.Inputs))
	}
}

func (m *Model[T]) checkVectorLength(name string, v []T) {
	if len(v) != m.parameterCount {
		panic(fmt.Sprintf("learner: %s has length %d, but the model has %d parameters", name, len(v), m.parameterCount))
	}
}

func isFinite(v float64) bool { return v-v == 0 }
