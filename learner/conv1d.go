package learner

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/fedmesh/fedmesh/spec"
)

// conv1d is a model with filter layers over time, followed by fully connected layers. A row has C channels of T time
// steps each, stored as x[c·T + t] for channel c and step t. A filter f with a kernel of K steps computes the sum b_f +
// Σ_{c,k} W[f,c,k] x[c, t+k] at the steps t = 0 … T − K. Max pooling keeps the largest of every P consecutive sums;
// incomplete pools are dropped. The filters are the channels of the next layer. The activation function is monotonic,
// so it may be applied before or after pooling.
type conv1d[T Float] struct {
	*network[T]
	filters       []filterLayer
	pooledOutputs [][]T     // pooled outputs of each filter layer [rows,out,steps]
	argmaxSteps   [][]int32 // time step of the largest sum in each pool, in the same shape as pooledOutputs
	pooledDeltas  [][]T

	patches, patchSums []T
}

// filterLayer is a filter layer. The field layer contains the offsets of the weights [out,channels,kernel] and biases
// [out], where in = channels·kernel. The fields inputSteps and outputSteps are the numbers of steps per channel before
// and after the layer.
type filterLayer struct {
	layer
	channels, kernel, pool  int
	inputSteps, outputSteps int
}

// tileElements is the maximum number of filter inputs and sums of a row that are processed at a time, so that they stay
// in the CPU cache. A tile has at least one time step.
const tileElements = 4096

func newConv1D[T Float](a Architecture) (Objective[T], error) {
	v := &a.Convolution
	steps, err := v.StepsByLayer(a.Inputs)
	if err != nil {
		return nil, fmt.Errorf("architecture: %w", err)
	}
	c := &conv1d[T]{}
	channels, before, offset, params, units := v.InputChannels, a.Inputs/v.InputChannels, 0, 0, 0
	for i, out := range v.FiltersPerLayer {
		f := filterLayer{layer: layer{in: channels * v.KernelSteps, out: out, weightOffset: offset, biasOffset: -1},
			channels: channels,
			kernel:   v.KernelSteps, pool: v.PoolSteps, inputSteps: before, outputSteps: steps[i]}
		offset += f.in * out
		if a.HasBias {
			f.biasOffset = offset
			offset += out
		}
		c.filters = append(c.filters, f)
		channels, before = out, steps[i]
		params, units = params+f.in*out, units+f.outputsPerRow()
	}
	c.network = newNetworkOfLayers[T](a, layersFromOffset(offset, channels*before, a))
	for _, l := range c.layers {
		params, units = params+l.in*l.out, units+l.out
	}
	c.rowsPerOutputPass = cacheableRows(params, units)
	c.pooledOutputs, c.pooledDeltas, c.argmaxSteps = make([][]T, len(c.filters)), make([][]T, len(c.filters)),
		make([][]int32, len(c.filters))
	return c, nil
}

// outputsPerRow returns the number of outputs of the layer per row.
func (f *filterLayer) outputsPerRow() int { return f.out * f.outputSteps }

// convolvedSteps returns the number of time steps for which the filter computes a sum. These steps fill whole pools.
func (f *filterLayer) convolvedSteps() int { return f.outputSteps * f.pool }

// stepsPerTile returns the number of convolved steps that are processed together.
func (f *filterLayer) stepsPerTile() int {
	return min(f.convolvedSteps(), max(1, tileElements/max(f.in, f.out)))
}

// Layout implements Objective. Each filter layer has the tensors "layer0.weight" [filters,channels,kernel] and
// "layer0.bias" [filters]. The fully connected layers follow; the input of the first has the index f·T' + t for filter
// f and step t, where T' is the number of steps after pooling.
func (c *conv1d[T]) Layout() (all []TensorSpec) {
	for i, f := range c.filters {
		of := tensorLayoutFromLayer(i, []layer{f.layer})
		of[0].Shape = []int{f.out, f.channels, f.kernel}
		all = append(all, of...)
	}
	return append(all, tensorLayoutFromLayer(len(c.filters), c.layers)...)
}

// InitParameters implements Objective. The weights of filters are drawn like the weights of hidden layers, with C·K
// inputs and F·K outputs for C channels, F filters and kernels of K steps.
func (c *conv1d[T]) InitParameters(w []T, rng *rand.Rand) {
	for _, f := range c.filters {
		drawGlorotWeights(w[f.weightOffset:][:f.in*f.out], f.in, f.out*f.kernel, rng)
	}
	c.network.InitParameters(w, rng)
}

// reserveScratch allocates scratch memory for the given number of rows, including derivatives if requested.
func (c *conv1d[T]) reserveScratch(rows int, derivatives bool) {
	for i, f := range c.filters {
		n := rows * f.outputsPerRow()
		if len(c.pooledOutputs[i]) < n {
			c.pooledOutputs[i], c.argmaxSteps[i] = make([]T, n), make([]int32, n)
		}
		if derivatives && len(c.pooledDeltas[i]) < n {
			c.pooledDeltas[i] = make([]T, n)
		}
		if n := f.stepsPerTile(); len(c.patches) < n*f.in || len(c.patchSums) < n*f.out {
			c.patches = make([]T, max(len(c.patches), n*f.in))
			c.patchSums = make([]T, max(len(c.patchSums), n*f.out))
		}
	}
}

// forward computes the outputs of a block, before the loss is applied, in the shape [rows,outputs].
func (c *conv1d[T]) forward(w []T, b Batch[T]) []T {
	rows := len(b.Y)
	c.reserveScratch(rows, false)
	for i := range c.filters {
		f := &c.filters[i]
		out, x := c.pooledOutputs[i][:rows*f.outputsPerRow()], c.filterInput(i, b)
		for s := range rows {
			c.convolveAndMaxPool(f, w, x[s*f.channels*f.inputSteps:], out[s*f.outputsPerRow():][:f.outputsPerRow()],
				c.argmaxSteps[i][s*f.outputsPerRow():])
		}
		applyActivation(c.activation, out)
	}
	return c.network.forward(w, c.filterOutput(b))
}

// filterInput returns the input of filter layer i, in the shape [rows,channels,steps].
func (c *conv1d[T]) filterInput(i int, b Batch[T]) []T {
	if i == 0 {
		return b.X
	}
	return c.pooledOutputs[i-1]
}

// filterOutput returns the output of the last filter layer as a batch.
func (c *conv1d[T]) filterOutput(b Batch[T]) Batch[T] {
	last := len(c.filters) - 1
	return Batch[T]{X: c.pooledOutputs[last][:len(b.Y)*c.filters[last].outputsPerRow()], Y: b.Y}
}

// convolveAndMaxPool writes the largest sum of each pool of a row x to out, in the shape [out,steps], and the time step
// of that sum to from.
func (c *conv1d[T]) convolveAndMaxPool(f *filterLayer, w, x, out []T, from []int32) {
	var bias []T
	if f.biasOffset >= 0 {
		bias = w[f.biasOffset:][:f.out]
	}
	used, tile := f.convolvedSteps(), f.stepsPerTile()
	for t := 0; t < used; t += tile {
		n := min(tile, used-t)
		sums := c.patchSums[:n*f.out]
		c.kernels.forwardLayer(sums, w[f.weightOffset:][:f.in*f.out], bias, c.extractPatches(f, x, t, n), f.in, f.out)
		for i := range n {
			j, first := (t+i)/f.pool, (t+i)%f.pool == 0
			for o, v := range sums[i*f.out:][:f.out] {
				if at := o*f.outputSteps + j; first || v > out[at] || v != v {
					out[at], from[at] = v, int32(t+i)
				}
			}
		}
	}
}

// extractPatches returns the filter inputs of a row x at the n time steps from t on, in the shape [n,channels·kernel].
func (c *conv1d[T]) extractPatches(f *filterLayer, x []T, t, n int) []T {
	patches := c.patches[:n*f.in]
	for i := range n {
		patch := patches[i*f.in:][:f.in]
		for ch := range f.channels {
			copy(patch[ch*f.kernel:][:f.kernel], x[ch*f.inputSteps+t+i:])
		}
	}
	return patches
}

// AddRowRisks implements Objective.
func (c *conv1d[T]) AddRowRisks(sum float64, w []T, b Batch[T]) float64 {
	for from := 0; from < len(b.Y); from += c.rowsPerOutputPass {
		part := b.RowRange(from, c.rowsPerOutputPass)
		sum = addRisks(sum, c.loss, nil, c.forward(w, part), part.Y)
	}
	return sum
}

// Backward implements Objective. It leaves the derivatives of the risk with respect to the sums of every layer in the
// scratch memory.
func (c *conv1d[T]) Backward(w []T, b Batch[T]) float64 {
	rows := len(b.Y)
	z := c.forward(w, b)
	c.reserveScratch(rows, true)
	c.network.reserveScratch(c.layerDeltas, rows)
	sum := addRisks(0, c.loss, c.layerDeltas[len(c.layers)-1], z, b.Y)
	c.backpropagateLayers(w, rows)
	last := len(c.filters) - 1
	c.computeInputDerivatives(c.pooledDeltas[last], w, 0, rows)
	for i := last; ; i-- {
		f := &c.filters[i]
		multiplyByActivationDerivative(c.activation, c.pooledDeltas[i][:rows*f.outputsPerRow()], c.pooledOutputs[i])
		if i == 0 {
			return sum
		}
		dst, size := c.pooledDeltas[i-1], f.channels*f.inputSteps
		clear(dst[:rows*size])
		for s := range rows {
			at := s * f.outputsPerRow()
			c.backpropagateFilters(f, w, dst[s*size:][:size], c.pooledDeltas[i][at:], c.argmaxSteps[i][at:])
		}
	}
}

// backpropagateFilters adds the derivatives with respect to the layer's input of one row to dst, in the shape
// [channels,steps]. The parameter delta contains the derivatives with respect to the sums that max pooling has kept.
func (c *conv1d[T]) backpropagateFilters(f *filterLayer, w, dst, delta []T, from []int32) {
	used, tile := f.convolvedSteps(), f.stepsPerTile()
	for t := 0; t < used; t += tile {
		n := min(tile, used-t)
		patches := c.patches[:n*f.in]
		clear(patches)
		for o := range f.out {
			weights := w[f.weightOffset+o*f.in:][:f.in]
			for j := o*f.outputSteps + t/f.pool; j <= o*f.outputSteps+(t+n-1)/f.pool; j++ {
				if at := int(from[j]) - t; at >= 0 && at < n && delta[j] != 0 {
					c.kernels.axpy(delta[j], weights, patches[at*f.in:][:f.in])
				}
			}
		}
		for i := range n {
			patch := patches[i*f.in:][:f.in]
			for ch := range f.channels {
				into := dst[ch*f.inputSteps+t+i:][:f.kernel]
				for k, v := range patch[ch*f.kernel:][:f.kernel] {
					into[k] += v
				}
			}
		}
	}
}

// AddGradient implements Objective.
func (c *conv1d[T]) AddGradient(dst []T, b Batch[T], scale float64) {
	for i := range c.filters {
		f, x := &c.filters[i], c.filterInput(i, b)
		for s := range b.Y {
			at := s * f.outputsPerRow()
			c.addFilterGradient(f, dst, x[s*f.channels*f.inputSteps:], c.pooledDeltas[i][at:], c.argmaxSteps[i][at:],
				T(scale))
		}
	}
	c.network.AddGradient(dst, c.filterOutput(b), scale)
}

// addFilterGradient adds the contribution of a row x to the gradient with respect to the filter weights.
func (c *conv1d[T]) addFilterGradient(f *filterLayer, dst, x, delta []T, from []int32, scale T) {
	used, tile := f.convolvedSteps(), f.stepsPerTile()
	for t := 0; t < used; t += tile {
		n := min(tile, used-t)
		patches := c.extractPatches(f, x, t, n)
		for o := range f.out {
			row, sum := dst[f.weightOffset+o*f.in:][:f.in], T(0)
			for j := o*f.outputSteps + t/f.pool; j <= o*f.outputSteps+(t+n-1)/f.pool; j++ {
				if at := int(from[j]) - t; at >= 0 && at < n && delta[j] != 0 {
					by := T(scale * delta[j])
					c.kernels.axpy(by, patches[at*f.in:][:f.in], row)
					sum += by
				}
			}
			if f.biasOffset >= 0 {
				dst[f.biasOffset+o] += sum
			}
		}
	}
}

// RowOutputs implements Objective.
func (c *conv1d[T]) RowOutputs(w []T, b Batch[T]) []T { return c.forward(w, b) }

// SumScores implements Objective.
func (c *conv1d[T]) SumScores(w []T, s *Samples[T]) ScoreSums {
	return tallyScores(c.loss, s, c.rowsPerOutputPass, func(b Batch[T]) []T { return c.forward(w, b) })
}

// RestandardizeParameters implements Objective. A filter uses the same weights at each step of a channel, so the scale
// and the mean must change in the same way at all steps of a channel.
func (c *conv1d[T]) RestandardizeParameters(w []T, from, to Standardization) (moved bool, err error) {
	f := &c.filters[0]
	scales, moves := make([]float64, f.channels), make([]float64, f.channels)
	for ch := range f.channels {
		for t := range f.inputSteps {
			j := ch*f.inputSteps + t
			scale, move := to.Scale[j]/from.Scale[j], (to.Mean[j]-from.Mean[j])/from.Scale[j]
			if t == 0 {
				scales[ch], moves[ch] = scale, move
			}
			if !nearlyEqual(scale, scales[ch]) || !nearlyEqual(move, moves[ch]) {
				return false, fmt.Errorf("feature %d (step %d of channel %d) would be scaled by %v and shifted by "+
					"%v, but step 0 by %v and %v: all steps of a channel must have the same standardization", j, t, ch,
					scale, move, scales[ch],
					moves[ch])
			}
		}
	}
	for o := range f.out {
		shift := 0.0
		for ch := range f.channels {
			for k := range f.kernel {
				v := &w[f.weightOffset+o*f.in+ch*f.kernel+k]
				shift += float64(*v) * moves[ch]
				*v = T(float64(*v) * scales[ch])
			}
		}
		moved = addToBias(w, f.layer, o, shift) || moved
	}
	if c.risk.StandardizesTarget() {
		moved = restandardizeOutput(w, c.layers[len(c.layers)-1], 0, len(from.Mean)-1, from, to) || moved
	}
	return moved, nil
}

// nearlyEqual reports whether two numbers are equal except for rounding errors.
func nearlyEqual(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(b)) }

// PoolChannelMoments returns moments in which all steps of a conv1d channel share the moments of the whole channel, so
// that standardisation preserves the shape of a time window. For other kinds of models it returns m.
func (a Architecture) PoolChannelMoments(m *ColumnMoments) *ColumnMoments {
	if a.Kind != spec.ModelConv1D {
		return m
	}
	channels := a.Convolution.InputChannels
	steps := a.Inputs / channels
	p := newColumnMoments(a.Inputs)
	p.RowCount = m.RowCount * float64(steps)
	for ch := range channels {
		first := ch * steps
		for t := range steps {
			p.mergeColumn(first, m.RowCount*float64(t), m.RowCount, m.Mean[first+t], m.SquaredDeviations[first+t])
		}
		for t := 1; t < steps; t++ {
			p.Mean[first+t], p.SquaredDeviations[first+t] = p.Mean[first], p.SquaredDeviations[first]
		}
	}
	p.Mean[a.Inputs], p.SquaredDeviations[a.Inputs] = m.Mean[a.Inputs], m.SquaredDeviations[a.Inputs]*float64(steps)
	return p
}
