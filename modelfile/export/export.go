// Package export writes a model for programs that are not ours: as ONNX, and as a header in C for microcontrollers.
// Both take rows in the units of the data, and give what a learner.Predictor does, to 1e-5.
package export

import (
	"fmt"

	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// Format is one in which models are written.
type Format string

// The formats.
const (
	FormatONNX Format = "onnx"
	FormatC    Format = "c"
)

// Encode returns a model's file in a format. The error is of a model that lacks what predicts, or of a format that is
// none.
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
	return nil, fmt.Errorf("there is no format %q", f)
}

// layer is weights [out, in] with a bias of each output, which may be nil.
type layer struct {
	in, out int
	w, b    []float32
}

// filterLayer is a layer of filters [out, channels, kernel], which leave pool steps of before each, as one number: the
// largest. Its layer has channels·kernel inputs.
type filterLayer struct {
	layer
	channels, kernel, pool  int
	inputSteps, outputSteps int // of each channel, before and after
}

// network is a model as both formats write it: standardised and clipped features, layers with an activation between
// them, and what its outputs mean.
type network struct {
	*modelfile.Model
	filters    []filterLayer
	layers     []layer // above them
	classCount int     // 0 for a regression
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

// isStandardized says that features and target have another unit inside.
func (n *network) isStandardized() bool { return len(n.Standardization.Mean) > 0 }

// targetScaling is the mean and the scale of a regression's target: 0 and 1 if it has its own unit inside.
func (n *network) targetScaling() (mean, scale float64) {
	st := &n.Standardization
	if last := len(st.Mean) - 1; last >= 0 {
		return st.Mean[last], st.Scale[last]
	}
	return 0, 1
}

// maxLayerUnits is the most units of a hidden layer, or of one of filters.
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

// hiddenActivation is the model's activation; identity where there are only outputs.
func (n *network) hiddenActivation() spec.Activation {
	if len(n.filters)+len(n.layers) == 1 {
		return spec.ActivationIdentity
	}
	return n.Architecture.Activation
}

// isAutoencoder says that the output is the error with which the last layer gives the row back.
func (n *network) isAutoencoder() bool { return n.Architecture.Kind == spec.ModelAutoencoder }

// isLogistic says that the one output is the log of the odds of class 1.
func (n *network) isLogistic() bool { return n.Architecture.Risk == spec.LossLogistic }
