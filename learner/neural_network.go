package learner

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/fedmesh/fedmesh/spec"
)

// network is a model of fully connected layers with an activation function between them. Without hidden layers it is
// softmax regression. It includes the bilinear network of equations (40)–(41) in the 2nd-order paper: see
// [Architecture].
type network[T Float] struct {
	layers     []layer
	activation spec.Activation
	risk       spec.LossKind
	loss       Loss[T]
	kernels    vectorKernels[T]

	rowsPerOutputPass int
	layerActivations  [][]T // outputs of each layer [rows,out], after the activation function except for the last layer
	layerDeltas       [][]T // derivatives of a row's risk with respect to each layer's sums [rows,out]
}

func newNetwork[T Float](a Architecture) (Objective[T], error) {
	return newNetworkOfLayers[T](a, layersOfArchitecture(a)), checkLayers(a)
}

func newNetworkOfLayers[T Float](a Architecture, layers []layer) *network[T] {
	return &network[T]{layers: layers, activation: a.Activation, risk: a.Risk, loss: newLoss[T](a),
		kernels: newLoopKernels[T](), rowsPerOutputPass: rowsPerForwardPass(layers), layerActivations: make([][]T,
			len(layers)),
		layerDeltas: make([][]T, len(layers))}
}

// rowsPerForwardPass returns the number of rows that are processed at a time if only their outputs are needed. The
// activations of these rows must fit into a CPU cache, or into an eighth of the memory of the parameters. For a wide
// layer with one input, the activations of 32 rows would need 16 times the memory of the model.
func rowsPerForwardPass(layers []layer) int {
	params, units := 0, 0
	for _, l := range layers {
		params += l.in * l.out
		units += l.out
	}
	return cacheableRows(params, units)
}

// cacheableRows returns the result of rowsPerForwardPass for layers with the given numbers of weights and units.
func cacheableRows(params, units int) int {
	return min(max(max(params/8, 1<<16)/units, 1), rowBlockSize)
}

// checkLayers returns an error if the layers or the loss do not match the kind of the model.
func checkLayers(a Architecture) error {
	if of := spec.ModelKindFromLayers(len(a.HiddenUnits), a.Risk); a.resolvedKind() != of {
		return fmt.Errorf("architecture: kind is %s, but %d hidden layers with the risk %s require the kind %s", a.Kind,
			len(a.HiddenUnits), a.Risk, of)
	}
	return nil
}

// layer contains the offsets of a layer in the flat parameter vector: first the weights [out,in], then the optional
// biases [out].
type layer struct {
	in, out                  int
	weightOffset, biasOffset int
}

// layersOfArchitecture returns the layers of an architecture. Their parameters follow each other in the parameter
// vector.
func layersOfArchitecture(a Architecture) []layer { return layersFromOffset(0, a.Inputs, a) }

// layersFromOffset returns the layers of an architecture with the given number of inputs. Their parameters follow each
// other in the parameter vector, starting at offset.
func layersFromOffset(offset, in int, a Architecture) (layers []layer) {
	for _, out := range a.UnitsByLayer() {
		l := layer{in: in, out: out, weightOffset: offset, biasOffset: -1}
		offset += l.in * l.out
		if a.HasBias {
			l.biasOffset = offset
			offset += l.out
		}
		layers = append(layers, l)
		in = l.out
	}
	return layers
}

// tensorLayout returns the names and shapes of the tensors of the layers.
func tensorLayout(layers ...layer) (all []TensorSpec) { return tensorLayoutFromLayer(0, layers) }

// tensorLayoutFromLayer returns the names and shapes of the tensors of the layers. The numbers of the layers start with
// first.
func tensorLayoutFromLayer(first int, layers []layer) (all []TensorSpec) {
	for i, l := range layers {
		i += first
		all = append(all, TensorSpec{Name: fmt.Sprintf("layer%d.weight", i), Shape: []int{l.out, l.in}})
		if l.biasOffset >= 0 {
			all = append(all, TensorSpec{Name: fmt.Sprintf("layer%d.bias", i), Shape: []int{l.out}})
		}
	}
	return all
}

// Layout implements Objective. The tensors are "layer0.weight" [out,in], "layer0.bias" [out] if the model has biases,
// "layer1.weight", and so on.
func (n *network[T]) Layout() []TensorSpec { return tensorLayout(n.layers...) }

// InitParameters implements Objective. Weights of hidden layers are drawn from Glorot's uniform distribution,
// ±√(6/(in+out)), since equal hidden units would remain equal. All other parameters are zero.
func (n *network[T]) InitParameters(w []T, rng *rand.Rand) {
	for _, l := range n.layers[:len(n.layers)-1] {
		drawGlorotWeights(w[l.weightOffset:][:l.in*l.out], l.in, l.out, rng)
	}
}

// drawGlorotWeights draws weights from Glorot's uniform distribution for the given numbers of inputs and outputs.
func drawGlorotWeights[T Float](w []T, in, out int, rng *rand.Rand) {
	bound := math.Sqrt(6 / float64(in+out))
	for i := range w {
		w[i] = T(bound * (2*rng.Float64() - 1))
	}
}

// reserveScratch allocates scratch memory for the given number of rows.
func (n *network[T]) reserveScratch(scratch [][]T, rows int) {
	for i, l := range n.layers {
		if len(scratch[i]) < rows*l.out {
			scratch[i] = make([]T, rows*l.out)
		}
	}
}

// forward computes the outputs of a block, before the loss is applied, in the shape [rows,outputs]. The outputs and
// activations remain in the scratch memory.
func (n *network[T]) forward(w []T, b Batch[T]) []T {
	rows, x := len(b.Y), b.X
	n.reserveScratch(n.layerActivations, rows)
	for i, l := range n.layers {
		out := n.layerActivations[i][:rows*l.out]
		var bias []T
		if l.biasOffset >= 0 {
			bias = w[l.biasOffset:][:l.out]
		}
		n.kernels.forwardLayer(out, w[l.weightOffset:][:l.in*l.out], bias, x[:rows*l.in], l.in, l.out)
		if i < len(n.layers)-1 {
			applyActivation(n.activation, out)
		}
		x = out
	}
	return x
}

// AddRowRisks implements Objective.
func (n *network[T]) AddRowRisks(sum float64, w []T, b Batch[T]) float64 {
	for from := 0; from < len(b.Y); from += n.rowsPerOutputPass {
		part := b.RowRange(from, n.rowsPerOutputPass)
		sum = addRisks(sum, n.loss, nil, n.forward(w, part), part.Y)
	}
	return sum
}

// Backward implements Objective. It leaves the derivatives of the risk with respect to the sums of every layer in the
// scratch memory.
func (n *network[T]) Backward(w []T, b Batch[T]) float64 {
	z := n.forward(w, b)
	n.reserveScratch(n.layerDeltas, len(b.Y))
	sum := addRisks(0, n.loss, n.layerDeltas[len(n.layers)-1], z, b.Y)
	n.backpropagateLayers(w, len(b.Y))
	return sum
}

// backpropagateLayers propagates the derivatives with respect to the last layer's sums to the layers below.
func (n *network[T]) backpropagateLayers(w []T, rows int) {
	for i := len(n.layers) - 1; i > 0; i-- {
		n.computeInputDerivatives(n.layerDeltas[i-1], w, i, rows)
		multiplyByActivationDerivative(n.activation, n.layerDeltas[i-1][:rows*n.layers[i].in], n.layerActivations[i-1])
	}
}

// computeInputDerivatives fills dst, in the shape [rows,in], with the derivatives with respect to the input of layer i.
func (n *network[T]) computeInputDerivatives(dst, w []T, i, rows int) {
	l, above := n.layers[i], n.layerDeltas[i]
	clear(dst[:rows*l.in])
	for o := 0; o < l.out; o += 4 {
		w := w[l.weightOffset+o*l.in:][:min(4, l.out-o)*l.in]
		for s := range rows {
			n.kernels.addNonzeroRows(dst[s*l.in:][:l.in], 1, above[s*l.out+o:], 1, w)
		}
	}
}

// AddGradient implements Objective.
func (n *network[T]) AddGradient(dst []T, b Batch[T], scale float64) {
	x := b.X
	for i, l := range n.layers {
		for o := range l.out {
			row := dst[l.weightOffset+o*l.in:][:l.in]
			sum := n.kernels.addNonzeroRows(row, T(scale), n.layerDeltas[i][o:], l.out, x[:len(b.Y)*l.in])
			if l.biasOffset >= 0 {
				dst[l.biasOffset+o] += sum
			}
		}
		x = n.layerActivations[i]
	}
}

// MapLabels implements Objective.
func (n *network[T]) MapLabels(y []T, seen *LabelHistory) error {
	return n.loss.MapLabels(y, n.layers[len(n.layers)-1].out, seen)
}

// RowOutputs implements Objective.
func (n *network[T]) RowOutputs(w []T, b Batch[T]) []T { return n.forward(w, b) }

// SumScores implements Objective.
func (n *network[T]) SumScores(w []T, s *Samples[T]) ScoreSums {
	return tallyScores(n.loss, s, n.rowsPerOutputPass, func(b Batch[T]) []T { return n.forward(w, b) })
}

// RestandardizeParameters implements Objective.
func (n *network[T]) RestandardizeParameters(w []T, from, to Standardization) (bool, error) {
	return restandardizeLayers(w, n.layers[0], n.layers[len(n.layers)-1], n.risk, from, to), nil
}

// applyActivation applies the activation function to the elements of v in place. A NaN remains NaN, so that the risk
// becomes NaN.
func applyActivation[T Float](a spec.Activation, v []T) {
	switch a {
	case spec.ActivationTanh:
		tanh(v)
	case spec.ActivationReLU:
		for i, s := range v {
			if s < 0 {
				v[i] = 0
			}
		}
	}
}

// multiplyByActivationDerivative multiplies delta by the derivative of the activation function, which it computes from
// the values act of the function. The derivative of relu at 0 is 0.
func multiplyByActivationDerivative[T Float](a spec.Activation, delta, act []T) {
	switch a {
	case spec.ActivationTanh:
		for i := range delta {
			delta[i] *= 1 - T(act[i]*act[i])
		}
	case spec.ActivationReLU:
		for i := range delta {
			if act[i] <= 0 {
				delta[i] = 0
			}
		}
	}
}
