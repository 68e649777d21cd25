package task_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// convolving returns the linear task with a conv1d model, whose filters treat the two features as two time steps of one
// channel.
func convolving() wire.Task {
	w := linear()
	w.Model.Kind, w.Model.Convolution = spec.ModelConv1D, wire.ConvolutionLayers{InputChannels: 1, KernelSteps: 2,
		PoolSteps:       1,
		FiltersPerLayer: []uint32{3}}
	w.Model.Activation, w.Model.HasBias = spec.ActivationTanh, true
	return w
}

// TestConv1DRefused checks that invalid shapes are rejected, and that standardisations that differ within a channel are
// rejected.
func TestConv1DRefused(t *testing.T) {
	if err := task.Validate[float32](convolving()); err != nil {
		t.Fatal(err)
	}
	for says, change := range map[string]func(*wire.Task){
		"architecture.filters: invalid value []: the model kind conv1d requires": func(w *wire.Task) {
			w.Model.Convolution = wire.ConvolutionLayers{}
		},
		"architecture.channels: this key is set to 1, but only the model kind conv1d supports this " +
			"key": func(w *wire.Task) { w.Model.Kind = "" },
		"architecture.kernel: invalid value 2147483647: must be between 1 and 65536": func(w *wire.Task) {
			w.Model.Convolution.KernelSteps = math.MaxInt32 // On 32-bit systems, an int cannot hold a larger number.
		},
		"channels: invalid number of channels 3: 2 features cannot be " +
			"divided": func(w *wire.Task) { w.Model.Convolution.InputChannels = 3 },
		`has mean 1 and scale 3, but "a" in the same channel has 1 and 2`: func(w *wire.Task) {
			w.Standardization = wire.Standardization{Mean: []float64{1, 1, 0}, Scale: []float64{2, 3, 1}, Clip: 6}
		},
	} {
		w := convolving()
		change(&w)
		if err := task.Validate[float32](w); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("error %v, want %q", err, says)
		}
	}
}

// TestConv1DStandardization checks that the standardisation from the devices' statistics has one mean and one scale per
// channel.
func TestConv1DStandardization(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	rows := make([][]float64, 30)
	for i := range rows {
		rows[i] = []float64{rng.NormFloat64(), 4 + 3*rng.NormFloat64(), rng.NormFloat64()}
	}
	p := compile[float64](t, convolving())
	v, err := p.StatisticsVector(samples(rows))
	if err != nil {
		t.Fatal(err)
	}
	std, _, err := p.WithStandardization(1, of(t, v), 0)
	if err != nil {
		t.Fatal(err)
	}
	sum, squares := 0.0, 0.0
	for _, r := range rows {
		sum, squares = sum+r[0]+r[1], squares+r[0]*r[0]+r[1]*r[1]
	}
	mean := sum / 60
	scale, st := math.Sqrt(squares/60-mean*mean), std.Standardization
	for j := range 2 {
		if math.Abs(st.Mean[j]-mean) > 1e-12 || math.Abs(st.Scale[j]-scale) > 1e-12 || st.Mean[j] != st.Mean[0] {
			t.Errorf("feature %d has mean %v and scale %v, want %v, %v", j, st.Mean[j], st.Scale[j], mean, scale)
		}
	}
	compile[float64](t, std)
}
