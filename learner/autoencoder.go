package learner

import (
	"errors"
	"math"

	"github.com/fedmesh/fedmesh/spec"
)

// autoencoder is a network that reconstructs its features through a narrow layer. For a row of n features x and the
// outputs z of the last layer, the reconstruction error is e = √(‖z − x‖²/n) and the risk is e²/2. The autoencoder is
// therefore a regression with the output e and the target 0. The targets of rows are ignored.
type autoencoder[T Float] struct {
	*network[T]
	rowErrors []T // reconstruction error of each row in a block
}

func newAutoencoder[T Float](a Architecture) (Objective[T], error) {
	if len(a.HiddenUnits) == 0 || a.Risk != spec.LossSquared {
		return nil, errors.New("architecture: an autoencoder requires hidden layers and the squared risk")
	}
	return &autoencoder[T]{network: newNetworkOfLayers[T](a, layersOfArchitecture(a))}, nil
}

// forward returns the reconstruction errors of a block's rows. If delta is not nil, it fills delta with the derivatives
// of the rows' risks with respect to the outputs of the last layer.
func (a *autoencoder[T]) forward(delta, w []T, b Batch[T]) []T {
	if rows := len(b.Y); len(a.rowErrors) < rows {
		a.rowErrors = make([]T, rows)
	}
	z, n := a.network.forward(w, b), a.layers[0].in
	for s := range b.Y {
		x, z, sum := b.X[s*n:][:n], z[s*n:][:n], 0.0
		for j, v := range z {
			miss := float64(v) - float64(x[j])
			sum += float64(miss * miss)
			if delta != nil {
				delta[s*n+j] = T(miss / float64(n))
			}
		}
		a.rowErrors[s] = T(math.Sqrt(sum / float64(n)))
	}
	return a.rowErrors[:len(b.Y)]
}

// halfSquare returns the risk e²/2 of a row with the reconstruction error e.
func halfSquare[T Float](e T) float64 { return 0.5 * float64(e) * float64(e) }

// AddRowRisks implements Objective.
func (a *autoencoder[T]) AddRowRisks(sum float64, w []T, b Batch[T]) float64 {
	for from := 0; from < len(b.Y); from += a.rowsPerOutputPass {
		for _, e := range a.forward(nil, w, b.RowRange(from, a.rowsPerOutputPass)) {
			sum += halfSquare(e)
		}
	}
	return sum
}

// Backward implements Objective.
func (a *autoencoder[T]) Backward(w []T, b Batch[T]) (sum float64) {
	a.reserveScratch(a.layerDeltas, len(b.Y))
	for _, e := range a.forward(a.layerDeltas[len(a.layers)-1], w, b) {
		sum += halfSquare(e)
	}
	a.backpropagateLayers(w, len(b.Y))
	return sum
}

// MapLabels implements Objective. It accepts any target and sets it to 0.
func (a *autoencoder[T]) MapLabels(y []T, _ *LabelHistory) error {
	clear(y)
	return nil
}

// RowOutputs implements Objective. It returns the reconstruction error of each row.
func (a *autoencoder[T]) RowOutputs(w []T, b Batch[T]) []T { return a.forward(nil, w, b) }

// SumScores implements Objective. The residuals are the reconstruction errors of the rows.
func (a *autoencoder[T]) SumScores(w []T, s *Samples[T]) ScoreSums {
	t, all := ScoreSums{Samples: s.Len()}, s.All()
	t.allocateCounts(0)
	for from := 0; from < s.Len(); from += a.rowsPerOutputPass {
		for _, e := range a.forward(nil, w, all.RowRange(from, a.rowsPerOutputPass)) {
			t.RiskSum += halfSquare(e)
			t.addResidual(float64(e), 0)
		}
	}
	return t
}

// RestandardizeParameters implements Objective. It does not change the reconstruction in the units of the data.
func (a *autoencoder[T]) RestandardizeParameters(w []T, from, to Standardization) (moved bool, err error) {
	last := a.layers[len(a.layers)-1]
	moved = restandardizeInputs(w, a.layers[0], from, to)
	for j := range last.out {
		moved = restandardizeOutput(w, last, j, j, from, to) || moved
	}
	return moved, nil
}
