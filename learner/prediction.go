package learner

import "fmt"

// Prediction is a model's prediction for one row.
type Prediction struct {
	// Value is the predicted number in the units of the data, the most probable class (the first of several), or an
	// autoencoder's reconstruction error in standard deviations.
	Value float64
	// ClassProbabilities contains the probabilities of the classes 0, 1, …; empty for a regression. With two classes,
	// class 1 is the label 1, and class 0 the label 0 or −1. The slice is valid until the next prediction.
	ClassProbabilities []float64
}

// Predictor makes predictions for rows in the units of the data. It must not be used concurrently.
type Predictor[T Float] struct {
	model              *Model[T]
	loss               Loss[T]
	w, x               []T
	dummyTarget        [1]T
	classProbabilities []float64
	standardization    Standardization
}

// NewPredictor returns the predictor of a model with the parameters w that was trained on rows standardised by st. An
// empty st means no standardisation. The predictor keeps w. NewPredictor returns an error if w or st has a wrong
// length.
func NewPredictor[T Float](a Architecture, st Standardization, w []T) (*Predictor[T], error) {
	m, err := NewModel[T](a)
	if err != nil {
		return nil, err
	}
	if len(w) != m.parameterCount {
		return nil, fmt.Errorf("got %d parameters, but the model has %d", len(w), m.parameterCount)
	}
	if len(st.Mean) > 0 || len(st.Scale) > 0 {
		if err := st.Validate(); err != nil {
			return nil, err
		}
		if len(st.Mean) != a.Inputs+1 {
			return nil, fmt.Errorf("standardization has %d features, but the model has %d inputs", len(st.Mean)-1,
				a.Inputs)
		}
	}
	return &Predictor[T]{model: m, loss: newLoss[T](a), w: w, x: make([]T, a.Inputs), standardization: st}, nil
}

// Predict returns the prediction for a row of features. It standardises and clips the features exactly as in training,
// but does not change row.
func (p *Predictor[T]) Predict(row []T) Prediction {
	if copy(p.x, row); len(row) != len(p.x) {
		panic(fmt.Sprintf("learner: row has %d features, but the model has %d inputs", len(row), len(p.x)))
	}
	if len(p.standardization.Mean) > 0 {
		standardizeRowFeatures(p.standardization, p.x)
	}
	z := p.model.objective.RowOutputs(p.w, Batch[T]{X: p.x, Y: p.dummyTarget[:]})
	p.classProbabilities = p.loss.ClassProbabilities(p.classProbabilities[:0], z)
	if len(p.classProbabilities) == 0 {
		value := float64(p.loss.Predict(z))
		if len(p.standardization.Mean) > 0 && p.model.arch.HasTarget() {
			value = p.standardization.RestoreTarget(value)
		}
		return Prediction{Value: value}
	}
	best := 0
	for c, v := range p.classProbabilities {
		if v > p.classProbabilities[best] {
			best = c
		}
	}
	return Prediction{Value: float64(best), ClassProbabilities: p.classProbabilities}
}

// ClassCount returns the number of classes of a valid architecture, or 0 for a regression.
func (a Architecture) ClassCount() int {
	return len(newLoss[float32](a).ClassProbabilities(nil, make([]float32, a.Outputs)))
}
