package learner

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/spec"
)

// convolutions returns conv1d architectures that are small enough for finite differences: one and two filter layers,
// pools that fit and that drop steps, with and without hidden layers, for each loss and activation.
func convolutions() (all []Architecture) {
	of := func(inputs int, v spec.Convolution, hidden ...int) Architecture {
		return Architecture{Kind: spec.ModelConv1D, Inputs: inputs, Convolution: v, HiddenUnits: hidden, Outputs: 1,
			Activation: spec.ActivationTanh, Risk: spec.LossSquared, HasBias: true}
	}
	for i, a := range []Architecture{
		of(5, spec.Convolution{InputChannels: 1, KernelSteps: 3, FiltersPerLayer: []int{2}, PoolSteps: 1}),
		of(12, spec.Convolution{InputChannels: 2, KernelSteps: 3, FiltersPerLayer: []int{3}, PoolSteps: 2}, 4),
		// The last step is dropped, since it does not fill a pool.
		of(8, spec.Convolution{InputChannels: 1, KernelSteps: 2, FiltersPerLayer: []int{3}, PoolSteps: 3}),
		of(14, spec.Convolution{InputChannels: 2, KernelSteps: 2, FiltersPerLayer: []int{2, 3}, PoolSteps: 1}, 3),
		of(24, spec.Convolution{InputChannels: 2, KernelSteps: 3, FiltersPerLayer: []int{4, 5}, PoolSteps: 2}, 6, 4),
		of(28, spec.Convolution{InputChannels: 1, KernelSteps: 4, FiltersPerLayer: []int{2, 3}, PoolSteps: 3}),
		of(6, spec.Convolution{InputChannels: 6, KernelSteps: 1, FiltersPerLayer: []int{2}, PoolSteps: 1}, 2),
	} {
		a.Activation = []spec.Activation{spec.ActivationTanh, spec.ActivationReLU, spec.ActivationIdentity}[i%3]
		for _, risk := range []spec.LossKind{spec.LossSquared, spec.LossSoftmax, spec.LossLogistic, spec.LossHuber} {
			for _, bias := range []bool{false, true} {
				b := a
				if b.Risk, b.HasBias, b.Ridge = risk, bias, float64(i%2)*0.3; risk == spec.LossSoftmax {
					b.Outputs = 3
				} else if risk == spec.LossHuber {
					b.HuberDelta = 0.5
				}
				all = append(all, b)
			}
		}
	}
	return all
}

// alikeInChannels gives all time steps of a channel the same mean and scale.
func alikeInChannels(a Architecture, all ...Standardization) {
	if a.Kind != spec.ModelConv1D {
		return
	}
	steps := a.Inputs / a.Convolution.InputChannels
	for _, st := range all {
		for j := range a.Inputs {
			st.Mean[j], st.Scale[j] = st.Mean[j/steps*steps], st.Scale[j/steps*steps]
		}
	}
}

// TestConv1DByHand checks two channels of five steps, one filter of two steps and pools of two. The sums x₀[t] −
// x₀[t+1] + 2 x₁[t+1] + 0.5 are 3.5, −0.5, 8.5, −5.5. So 3.5 and 8.5 of the steps 0 and 2 are kept, and the output is
// 2·3.5 − 8.5 + 0.25 = −1.25.
func TestConv1DByHand(t *testing.T) {
	a := Architecture{Kind: spec.ModelConv1D, Inputs: 10, Outputs: 1, Activation: spec.ActivationReLU, HasBias: true,
		Risk: spec.LossSquared, Convolution: spec.Convolution{InputChannels: 2, KernelSteps: 2,
			FiltersPerLayer: []int{1},
			PoolSteps:       2}}
	if got, want := fmt.Sprint(a.Layout()),
		"[{layer0.weight [1 2 2]} {layer0.bias [1]} {layer1.weight [1 2]} {layer1.bias [1]}]"; got != want {
		t.Errorf("layout %s, want %s", got, want)
	}
	w := []float64{1, -1, 0, 2, 0.5, 2, -1, 0.25}
	b := Batch[float64]{X: []float64{4, 3, 2, 1, 1, 9, 1, -1, 3.5, -3}, Y: []float64{0.75}}
	m, grad := newModel[float64](t, a), make([]float64, 8)
	compare(t, "output", m.objective.RowOutputs(w, b), []float64{-1.25}, 0)
	compare(t, "risk", []float64{m.Gradient(grad, w, b)}, []float64{2}, 0)
	// The derivative is −2 at the output and −4 and 2 at the kept sums. The derivative with respect to the filter is
	// −4·(4, 3, 9, 1) + 2·(2, 1, −1, 3.5).
	compare(t, "gradient", grad, []float64{-12, -10, -38, 3, -2, -7, -17, -2}, 0)
}

// slow computes the outputs of a conv1d model for one row by plain sums over all indices.
func slow(a Architecture, w, x []float64) []float64 {
	act := func(v float64) float64 {
		switch a.Activation {
		case spec.ActivationTanh:
			return math.Tanh(v)
		case spec.ActivationReLU:
			return max(v, 0)
		}
		return v
	}
	v, channels := a.Convolution, a.Convolution.InputChannels
	for _, filters := range v.FiltersPerLayer {
		steps := len(x) / channels
		weights, bias := w[:filters*channels*v.KernelSteps], make([]float64, filters)
		if w = w[len(weights):]; a.HasBias {
			bias, w = w[:filters], w[filters:]
		}
		var out []float64
		for f := range filters {
			for t := 0; t+v.PoolSteps <= steps-v.KernelSteps+1; t += v.PoolSteps {
				most := math.Inf(-1)
				for p := range v.PoolSteps {
					sum := bias[f]
					for c := range channels {
						for k := range v.KernelSteps {
							sum += weights[(f*channels+c)*v.KernelSteps+k] * x[c*steps+t+p+k]
						}
					}
					most = max(most, act(sum))
				}
				out = append(out, most)
			}
		}
		x, channels = out, filters
	}
	for i, units := range a.UnitsByLayer() {
		out := make([]float64, units)
		for o := range out {
			for j, v := range x {
				out[o] += w[o*len(x)+j] * v
			}
		}
		if w = w[units*len(x):]; a.HasBias {
			for o := range out {
				out[o] += w[o]
			}
			w = w[units:]
		}
		for o := range out {
			if i < len(a.UnitsByLayer())-1 {
				out[o] = act(out[o])
			}
		}
		x = out
	}
	return x
}

// TestConv1DSlowly compares the outputs with plain sums. The cases include rows that are processed in several tiles,
// whose boundaries split a pool.
func TestConv1DSlowly(t *testing.T) {
	long := Architecture{Kind: spec.ModelConv1D, Inputs: 3 * 200, HiddenUnits: []int{5}, Outputs: 1, HasBias: true,
		Activation: spec.ActivationTanh, Risk: spec.LossSquared,
		Convolution: spec.Convolution{InputChannels: 3, KernelSteps: 40, FiltersPerLayer: []int{7, 4}, PoolSteps: 3}}
	if f := newModel[float64](t,
		long).objective.(*conv1d[float64]).filters[0]; f.stepsPerTile() >= f.convolvedSteps() ||
		f.stepsPerTile()%f.pool == 0 {
		t.Fatalf("tiles of %d of %d steps show nothing", f.stepsPerTile(), f.convolvedSteps())
	}
	rng := newRNG(21)
	for _, a := range append(convolutions(), long) {
		m, w := newModel[float64](t, a), randomVector[float64](a.ParameterCount(), 0.5, rng)
		b := randomSamples[float64](a, 5, rng).All()
		z := slices.Clone(m.objective.RowOutputs(w, b))
		for s := range b.Y {
			want := slow(a, w, b.X[s*a.Inputs:][:a.Inputs])
			compare(t, fmt.Sprintf("%+v", a), z[s*len(want):][:len(want)], want, 1e-12)
		}
	}
	matchDifferencesOf(t, long, 40)
}

// matchDifferencesOf compares the given number of elements of the gradient with central differences.
func matchDifferencesOf(t *testing.T, a Architecture, elements int) {
	t.Helper()
	const h = 1e-6
	m, rng := newModel[float64](t, a), newRNG(22)
	b, w := randomSamples[float64](a, 3, rng).All(), randomVector[float64](a.ParameterCount(), 0.1, rng)
	grad := make([]float64, len(w))
	m.Gradient(grad, w, b)
	for range elements {
		i := rng.IntN(len(w))
		v := w[i]
		w[i] = v + h
		up := m.Risk(w, b)
		w[i] = v - h
		down := m.Risk(w, b)
		w[i] = v
		if want := (up - down) / (2 * h); !(math.Abs(grad[i]-want) <= 1e-6*(1+math.Abs(want))) {
			t.Errorf("gradient[%d] = %v, differences say %v", i, grad[i], want)
		}
	}
}

// TestConv1DRestandardize checks that predictions do not change if the units change in the same way at all steps of a
// channel. Otherwise the model must remain unchanged and an error must be returned.
func TestConv1DRestandardize(t *testing.T) {
	rng := newRNG(23)
	for _, a := range convolutions() {
		if !a.HasBias {
			continue
		}
		n, steps := a.Inputs+1, a.Inputs/a.Convolution.InputChannels
		from, to := Standardization{}, Standardization{}
		for j := range n {
			from.Mean = append(from.Mean, rng.NormFloat64())
			from.Scale = append(from.Scale, math.Exp(rng.NormFloat64()))
			if j%steps == 0 || j == a.Inputs {
				to.Mean, to.Scale = append(to.Mean, rng.NormFloat64()), append(to.Scale, math.Exp(rng.NormFloat64()))
				continue
			}
			first := j / steps * steps
			to.Scale = append(to.Scale, from.Scale[j]*to.Scale[first]/from.Scale[first])
			to.Mean = append(to.Mean,
				from.Mean[j]+from.Scale[j]*(to.Mean[first]-from.Mean[first])/from.Scale[first])
		}
		from.keepLabelsUnscaled(a.Risk)
		to.keepLabelsUnscaled(a.Risk)
		m, w := newModel[float64](t, a), randomVector[float64](a.ParameterCount(), 0.5, rng)
		raw := randomVector[float64](a.Inputs, 2, rng)
		says := func(st Standardization) []float64 {
			x := slices.Clone(raw)
			standardizeRowFeatures(st, x)
			z := slices.Clone(m.objective.RowOutputs(w, Batch[float64]{X: x, Y: []float64{0}}))
			if a.Risk.StandardizesTarget() {
				z[0] = st.RestoreTarget(z[0])
			}
			return z
		}
		before := says(from)
		if err := m.RestandardizeParameters(w, from, to); err != nil {
			t.Errorf("%+v: %v", a, err)
		}
		compare(t, fmt.Sprintf("%+v", a), says(to), before, 1e-9)
		if steps == 1 {
			continue
		}
		same := slices.Clone(w)
		to.Scale[1] *= 1.001
		if err := m.RestandardizeParameters(w, from, to); err == nil || !slices.Equal(w, same) ||
			!strings.Contains(err.Error(), "feature 1 (step 1 of channel 0)") {
			t.Errorf("another scale of one step: %v, model changed %t", err, !slices.Equal(w, same))
		}
	}
}

// TestPooled checks that all steps of a channel share the mean and the deviation of the whole channel, with few and
// with many devices. Columns of 0 and 1 must not be scaled, and the target must be independent of the channels.
func TestPooled(t *testing.T) {
	a := Architecture{Kind: spec.ModelConv1D, Inputs: 6, Outputs: 1, Risk: spec.LossSquared, HasBias: true,
		Convolution: spec.Convolution{InputChannels: 2, KernelSteps: 2, FiltersPerLayer: []int{1}, PoolSteps: 1},
		Activation:  spec.ActivationTanh}
	x := []float64{1, 2, 6, 1, 0, 1, 3, 2, 4, 1, 1, 0}
	all := ComputeColumnMoments(NewSamples(6, x, []float64{10, 30}))
	for _, devices := range []int{1, 5} {
		st, _, err := CombineIntoStandardization(devices, 7, func(take func(*ColumnMoments)) error {
			for range devices {
				take(a.PoolChannelMoments(all))
			}
			return nil
		}, a.Risk, 0)
		if err != nil {
			t.Fatal(err)
		}
		second, scale := 2./3, math.Sqrt(2./9) // standard deviation of values that are 0 or 1
		if devices > 1 {                       // With many devices, columns of 0 and 1 are not scaled.
			scale = 1
		}
		compare(t, "means", st.Mean, []float64{3, 3, 3, second, second, second, 20}, 1e-12)
		first := math.Sqrt(16. / 6)
		compare(t, "scales", st.Scale, []float64{first, first, first, scale, scale, scale, 10}, 1e-12)
	}
	a = Architecture{Inputs: 6, Outputs: 1, Risk: spec.LossSquared}
	if a.PoolChannelMoments(all) != all {
		t.Error("moments of a linear model are pooled")
	}
}

// TestConv1DWants checks that the error for an invalid shape contains the configuration key and a remedy.
func TestConv1DWants(t *testing.T) {
	good := Architecture{Kind: spec.ModelConv1D, Inputs: 20, HiddenUnits: []int{3}, Outputs: 1, Risk: spec.LossSquared,
		Activation:  spec.ActivationTanh,
		Convolution: spec.Convolution{InputChannels: 2, KernelSteps: 3, FiltersPerLayer: []int{4, 4}, PoolSteps: 2}}
	for want, edit := range map[string]func(a *Architecture, v *spec.Convolution){
		"": func(*Architecture, *spec.Convolution) {},
		"architecture.filters: invalid value []": func(_ *Architecture, v *spec.Convolution) {
			v.FiltersPerLayer = nil
		},
		"architecture.channels: invalid value 0": func(_ *Architecture, v *spec.Convolution) { v.InputChannels = 0 },
		"architecture.kernel: invalid value -1":  func(_ *Architecture, v *spec.Convolution) { v.KernelSteps = -1 },
		"architecture.pool: invalid value 65537": func(_ *Architecture, v *spec.Convolution) { v.PoolSteps = 65537 },
		"architecture.filters[1]: invalid value 0": func(_ *Architecture, v *spec.Convolution) {
			v.FiltersPerLayer = []int{1, 0}
		},
		"filters: the model has 2 filter layers and 7 hidden layers": func(a *Architecture, _ *spec.Convolution) {
			a.HiddenUnits = []int{1, 1, 1, 1, 1, 1, 1}
		},
		"channels: invalid number of channels 3: 20 features cannot be " +
			"divided": func(_ *Architecture, v *spec.Convolution) {
			v.InputChannels = 3
		},
		"kernel: the kernel size 11 exceeds the 10 steps of a channel (20 features in 2 " +
			"channels)": func(_ *Architecture,
			v *spec.Convolution) {
			v.KernelSteps = 11
		},
		"kernel: the kernel size 5 exceeds the 3 output steps of " +
			"filters[0]": func(_ *Architecture, v *spec.Convolution) {
			v.KernelSteps = 5
		},
		"pool: the pool size is 4, but a kernel of 1 leaves only 2 of the 2 output steps of " +
			"filters[0]": func(_ *Architecture,
			v *spec.Convolution) {
			v.KernelSteps, v.PoolSteps = 1, 4
		},
		"filters[0]: 16384 filters with 10 steps per filter have 163840 units in total, but at most " +
			"65536 are allowed": func(_ *Architecture,
			v *spec.Convolution) {
			v.KernelSteps, v.PoolSteps, v.FiltersPerLayer = 1, 1, []int{16384}
		},
		"architecture.kernel: this key is set to 3, but only the model kind conv1d supports this " +
			"key": func(a *Architecture,
			v *spec.Convolution) {
			a.Kind, *v = spec.ModelMLP, spec.Convolution{KernelSteps: 3}
		},
		"activation: want tanh": func(a *Architecture, _ *spec.Convolution) { a.HiddenUnits, a.Activation = nil, "" },
	} {
		a := good
		edit(&a, &a.Convolution)
		got := ""
		if err := a.Validate(); err != nil {
			got = err.Error()
		}
		if (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("error %q, want %q", got, want)
		}
	}
}

// TestConv1DShowsNaN checks that a NaN feature makes the output NaN, whatever its position in a pool.
func TestConv1DShowsNaN(t *testing.T) {
	a, rng := convolutions()[8], newRNG(24)
	m, w := newModel[float64](t, a), randomVector[float64](a.ParameterCount(), 0.5, rng)
	for i := range a.Inputs {
		x := randomVector[float64](a.Inputs, 1, rng)
		x[i] = math.NaN()
		if z := m.objective.RowOutputs(w, Batch[float64]{X: x, Y: []float64{0}}); !math.IsNaN(z[0]) {
			t.Errorf("%+v: with feature %d NaN the output is %v", a, i, z)
		}
	}
}
