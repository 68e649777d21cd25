// Package export writes trained models for other programs, as ONNX files or as C headers for microcontrollers. Both
// formats take unscaled features as input. Their predictions agree with learner.Predictor within 1e-5.
package export

import (
	"fmt"

	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// Format is a file format for exported models.
type Format string

// Formats of exported models.
const (
	FormatONNX Format = "onnx"
	FormatC    Format = "c"
)

// Encode returns a model in the given format. It returns an error if the model cannot predict or the format is unknown.
func Encode(f Format, m *modelfile.Model) ([]byte, error) {
	n, err := networkFromModel(m)
	switch {
	case err != nil:
		return nil, err
	case f == FormatONNX:
		return n.encodeONNX(), nil
	case f == FormatC:
		return n.encodeCHeader(), nil
	}
	return nil, fmt.Errorf("unknown export format %q", f)
}

// layer is a dense layer with weights of shape [out, in] and one optional bias per output.
type layer struct {
	in, out int
	w, b    []float32
}

// filterLayer is a convolution layer with weights of shape [out, channels, kernel], followed by max pooling over pool
// steps. The embedded layer has channels·kernel inputs and one output per filter.
type filterLayer struct {
	layer
	channels, kernel, pool  int
	inputSteps, outputSteps int // number of steps per channel before and after the layer
}

// network is the representation of a model from which both export formats are written. It contains the standardisation
// and clipping of the features, the layers with an activation between them, and the interpretation of the outputs.
type network struct {
	*modelfile.Model
	filters    []filterLayer
	layers     []layer // dense layers after the filters
	classCount int     // number of classes; 0 for a regression
}

func networkFromModel(m *modelfile.Model) (*network, error) {
	if _, err := m.Predictor(); err != nil {
		return nil, err
	}
	w := make([]float32, len(m.ParameterBytes)/4)
	if err := wire.DecodeVector(w, m.ParameterBytes); err != nil {
		return nil, err
	}
	a := m.Architecture
	n := &network{Model: m, classCount: a.ClassCount()}
	take := func(in, out int) layer {
		l := layer{in: in, out: out, w: w[:in*out]}
		if w = w[in*out:]; a.HasBias {
			l.b, w = w[:out], w[out:]
		}
		return l
	}
	in := a.Inputs
	if v := &a.Convolution; len(v.FiltersPerLayer) > 0 {
		steps, err := v.StepsByLayer(a.Inputs)
		if err != nil {
			return nil, err
		}
		channels, before := v.InputChannels, a.Inputs/v.InputChannels
		for i, out := range v.FiltersPerLayer {
			n.filters = append(n.filters, filterLayer{layer: take(channels*v.KernelSteps, out), channels: channels,
				kernel: v.KernelSteps, pool: v.PoolSteps, inputSteps: before, outputSteps: steps[i]})
			channels, before = out, steps[i]
		}
		in = channels * before
	}
	for _, out := range a.UnitsByLayer() {
		n.layers = append(n.layers, take(in, out))
		in = out
	}
	return n, nil
}

// isStandardized reports whether the model standardises features and target.
func (n *network) isStandardized() bool { return len(n.Standardization.Mean) > 0 }

// targetScaling returns the mean and scale of a regression target. It returns 0 and 1 if the target is not
// standardised.
func (n *network) targetScaling() (mean, scale float64) {
	st := &n.Standardization
	if last := len(st.Mean) - 1; last >= 0 {
		return st.Mean[last], st.Scale[last]
	}
	return 0, 1
}

// maxLayerUnits returns the number of units of the largest hidden layer or filter layer.
func (n *network) maxLayerUnits() int {
	most := 1
	for _, f := range n.filters {
		most = max(most, f.out*f.outputSteps)
	}
	for _, l := range n.layers[:len(n.layers)-1] {
		most = max(most, l.out)
	}
	return most
}

// hiddenActivation returns the activation of the hidden layers. It returns identity if the model has only an output
// layer.
func (n *network) hiddenActivation() spec.Activation {
	if len(n.filters)+len(n.layers) == 1 {
		return spec.ActivationIdentity
	}
	return n.Architecture.Activation
}

// isAutoencoder reports whether the model is an autoencoder, whose output is the reconstruction error of the row.
func (n *network) isAutoencoder() bool { return n.Architecture.Kind == spec.ModelAutoencoder }

// isLogistic reports whether the model has a single output that contains the log-odds of class 1.
func (n *network) isLogistic() bool { return n.Architecture.Risk == spec.LossLogistic }
