package modelfile_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// models returns at least one model of each kind and each loss. The scale of a standardised target is not 1. For a loss
// without an entry of its own, it returns a model without hidden layers.
func models() map[string]*modelfile.Model {
	of := func(a learner.Architecture, standardized bool) *modelfile.Model {
		a.Inputs, a.HasBias = 3, a.Risk != spec.LossHuber
		if a.Kind == spec.ModelConv1D {
			a.Inputs = width
		}
		a.Outputs = max(a.Outputs, 1)
		rng := rand.New(rand.NewPCG(uint64(len(a.HiddenUnits)), 7))
		w := make([]float32, a.ParameterCount())
		for i := range w {
			w[i] = float32(rng.NormFloat64())
		}
		t := &wire.Task{Name: "air", Features: []string{"temp", "µ", `a "b"`}, TargetColumn: "pm"}
		if standardized {
			t.Standardization = wire.Standardization{Mean: []float64{10, -3, 0.5, 80}, Scale: []float64{4, 0.1, 2, 25},
				Clip: 1.5}
			if !a.Risk.StandardizesTarget() || !a.HasTarget() {
				t.Standardization.Mean[3], t.Standardization.Scale[3] = 0, 1
			}
		}
		vector := wire.AppendVector(nil, w)
		m := modelfile.NewModel(t, a, vector, wire.BlobDigest(vector))
		m.Run, m.Version = 3, 17
		if len(a.HiddenUnits) > 0 {
			m.Features, m.Target = []string{"temp lag 2h", "wd = N", "hour sin"}, "pm in 6h"
			m.Recipe = &spec.RowRecipe{Grid: spec.TimeGrid{Step: time.Hour, Lateness: 10 * time.Minute,
				TimeZone: "Europe/Berlin"},
				Inputs: []spec.InputSeries{{Name: "temp", Unit: "°C", ValidRange: []float64{-50, 60},
					Resampling: spec.ResampleMean,
					Transform:  spec.TransformNone, StuckAfter: 90 * time.Minute},
					{Name: "pm", Resampling: spec.ResampleMax, MaxJump: 0.5,
						Transform: spec.TransformLog1p},
					{Name: "wd", Resampling: spec.ResampleLast, Transform: spec.TransformNone, Classes: []string{"N",
						"S"}}}}
		}
		if !a.HasTarget() {
			m.Target = ""
		}
		if a.Kind == spec.ModelConv1D {
			m.Features = windows()
			m.Standardization = channels(m.Standardization)
		}
		return m
	}
	type arch = learner.Architecture
	all := map[string]*modelfile.Model{
		"linear": of(arch{Risk: spec.LossSquared}, true), "plain": of(arch{Risk: spec.LossSquared}, false),
		"huber":    of(arch{Risk: spec.LossHuber, HuberDelta: 1}, true),
		"logistic": of(arch{Risk: spec.LossLogistic}, true),
		"softmax":  of(arch{Risk: spec.LossSoftmax, Outputs: 4}, true),

		"tanh": of(arch{Risk: spec.LossSquared, HiddenUnits: []int{5, 4}, Activation: spec.ActivationTanh}, true),
		"relu": of(arch{Risk: spec.LossSoftmax, Outputs: 2, HiddenUnits: []int{6}, Activation: spec.ActivationReLU},
			true),
		"autoencoder": of(arch{Kind: spec.ModelAutoencoder, Risk: spec.LossSquared, HiddenUnits: []int{4, 2, 4},
			Activation: spec.ActivationTanh}, true),
		"conv1d": of(arch{Kind: spec.ModelConv1D, Risk: spec.LossSquared, HiddenUnits: []int{3},
			Activation:  spec.ActivationTanh,
			Convolution: spec.Convolution{InputChannels: 2, KernelSteps: 2, FiltersPerLayer: []int{4}, PoolSteps: 2}},
			true),
		// This pooling omits one remaining step.
		"conv1d2": of(arch{Kind: spec.ModelConv1D, Risk: spec.LossSoftmax, Outputs: 3, HiddenUnits: []int{4},
			Activation: spec.ActivationReLU,
			Convolution: spec.Convolution{InputChannels: 2, KernelSteps: 3, FiltersPerLayer: []int{5, 4},
				PoolSteps: 1}}, true),
	}
	for _, loss := range spec.DeviceLossKinds() {
		if !hasLoss(all, loss) {
			all[string(loss)] = of(arch{Risk: loss}, true)
		}
	}
	return all
}

// hasLoss reports whether one of the models has the given loss.
func hasLoss(all map[string]*modelfile.Model, loss spec.LossKind) bool {
	for _, m := range all {
		if m.Architecture.Risk == loss {
			return true
		}
	}
	return false
}

// TestModelsHaveEveryKind checks that the other tests cover every kind of model that agents train.
func TestModelsHaveEveryKind(t *testing.T) {
	tested := map[spec.ModelKind]bool{}
	for _, m := range models() {
		a := m.Architecture
		tested[cmp.Or(a.Kind, spec.ModelKindFromLayers(len(a.HiddenUnits), a.Risk))] = true
	}
	for _, kind := range spec.ModelKinds() {
		if !tested[kind] {
			t.Errorf("kind %s: add a model to models()", kind)
		}
	}
}

// width is the number of features of a conv1d model: two channels of six steps.
const width = 12

// windows returns the columns of a conv1d model, which are made from readings.
func windows() (all []string) {
	for _, input := range []string{"temp", "pm"} {
		for lag := width/2 - 1; lag > 0; lag-- {
			all = append(all, fmt.Sprintf("%s lag %dh", input, lag))
		}
		all = append(all, input)
	}
	return all
}

// channels repeats the standardisation of the first two columns for all steps of the two channels.
func channels(st learner.Standardization) learner.Standardization {
	wide := learner.Standardization{Clip: st.Clip}
	for j := range width {
		at := j / (width / 2)
		wide.Mean, wide.Scale = append(wide.Mean, st.Mean[at]), append(wide.Scale, st.Scale[at])
	}
	last := len(st.Mean) - 1
	wide.Mean, wide.Scale = append(wide.Mean, st.Mean[last]), append(wide.Scale, st.Scale[last])
	return wide
}

func encode(t *testing.T, m *modelfile.Model) []byte {
	t.Helper()
	file, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func TestRoundTrip(t *testing.T) {
	for name, m := range models() {
		got, err := modelfile.Decode(encode(t, m))
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%s: %v\n%+v, want\n%+v", name, err, got, m)
		}
	}
}

// TestPersonal checks that a file without personal tensors contains the other tensors, and that it cannot be used for
// predictions.
func TestPersonal(t *testing.T) {
	m := *models()["tanh"]
	parts := m.Architecture.NewParameterSplit([]string{"layer1"})
	w := make([]float32, len(m.ParameterBytes)/4)
	if err := wire.DecodeVector(w, m.ParameterBytes); err != nil {
		t.Fatal(err)
	}
	shared := make([]float32, parts.SharedElementCount())
	learner.SplitParameters(shared, nil, parts, w)
	m.PersonalTensors, m.ParameterBytes = []string{"layer1"}, wire.AppendVector(nil, shared)
	file := encode(t, &m)
	tensors, meta, err := store.DecodeSafetensors(file)
	if err != nil || meta["personal"] != "layer1.weight layer1.bias" {
		t.Fatalf("metadata %v, error %v", meta, err)
	}
	var names []string
	for _, x := range tensors {
		names = append(names, x.Name)
	}
	slices.Sort(names)
	if want := []string{"layer0.bias", "layer0.weight", "layer2.bias", "layer2.weight"}; !slices.Equal(names, want) {
		t.Errorf("tensors %v, want %v", names, want)
	}
	if _, err := modelfile.Decode(file); err == nil || !strings.Contains(err.Error(), "personal tensors") {
		t.Errorf("error %v", err)
	}
}

// TestEarlier checks that a file of an earlier program version, without the keys run, hash and kind, can be decoded.
func TestEarlier(t *testing.T) {
	m := models()["linear"]
	tensors, meta, err := store.DecodeSafetensors(encode(t, m))
	if err != nil {
		t.Fatal(err)
	}
	delete(meta, "run")
	delete(meta, "hash")
	delete(meta, "kind")
	file, err := store.EncodeSafetensors(tensors, meta)
	if err != nil {
		t.Fatal(err)
	}
	got, err := modelfile.Decode(file)
	if err != nil || got.ParameterDigest != m.ParameterDigest || got.Run != 0 || got.Version != 17 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestDamage(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(tensors []store.Tensor, meta map[string]string) []store.Tensor
		says string
	}{
		"a flipped weight": {func(all []store.Tensor, _ map[string]string) []store.Tensor {
			all[0].Data = bytes.Clone(all[0].Data)
			all[0].Data[2] ^= 1
			return all
		}, "the file is damaged"},
		"a tensor less": {func(all []store.Tensor, _ map[string]string) []store.Tensor { return all[1:] }, "tensor"},
		"a tensor more": {func(all []store.Tensor, _ map[string]string) []store.Tensor {
			return append(all, store.Tensor{Name: "x", DType: "F32"})
		}, "Data"},
		"another format": {func(all []store.Tensor, meta map[string]string) []store.Tensor {
			meta["format_version"] = "2"
			return all
		}, `format_version is "2"`},
		"another program's": {func(all []store.Tensor, meta map[string]string) []store.Tensor {
			delete(meta, "format")
			return all
		}, "coordinator model export"},
		"a kind of the future": {func(all []store.Tensor, meta map[string]string) []store.Tensor {
			meta["kind"] = "forest"
			return all
		}, `unknown model kind "forest"`},
		"no pool of a conv1d": {func(all []store.Tensor, meta map[string]string) []store.Tensor {
			delete(meta, "pool")
			return all
		}, `metadata: pool is ""`},
		"another pool of a conv1d": {func(all []store.Tensor, meta map[string]string) []store.Tensor {
			meta["pool"] = "1"
			return all
		}, "tensor layer1.weight has type F32 and shape [3 8]; expected type F32 and shape [3 20]"},
		"a conv1d without filters": {func(all []store.Tensor, meta map[string]string) []store.Tensor {
			return slices.DeleteFunc(all, func(t store.Tensor) bool { return strings.HasPrefix(t.Name, "layer0") })
		}, "filters: invalid value []"},
		"no risk": {func(all []store.Tensor, meta map[string]string) []store.Tensor {
			delete(meta, "risk")
			return all
		}, "risk"},
		"too few means": {func(all []store.Tensor, meta map[string]string) []store.Tensor {
			meta["mean"], meta["scale"] = "[1,2]", "[1,2]"
			return all
		}, "standardization has 1 features"},
		"a column less": {func(all []store.Tensor, meta map[string]string) []store.Tensor {
			meta["features"] = `["a","b"]`
			return all
		}, "expected type F32 and shape [1 2]"},
	} {
		of := "linear"
		if strings.Contains(name, "conv1d") {
			of = "conv1d"
		}
		tensors, meta, err := store.DecodeSafetensors(encode(t, models()[of]))
		if err != nil {
			t.Fatal(err)
		}
		tensors = c.edit(tensors, meta)
		if name == "a tensor more" {
			tensors[len(tensors)-1].Data, c.says = make([]byte, 4), "3 tensors"
		}
		file, err := store.EncodeSafetensors(tensors, meta)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := modelfile.Decode(file); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

// TestNumpy runs the Python code in docs/MODEL.md and compares its results with the predictions of learner.Predictor.
func TestNumpy(t *testing.T) {
	python := testkit.NumpyPython(t)
	page, err := os.ReadFile("../docs/MODEL.md")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(page), "```python\n")
	code, _, found := strings.Cut(code, "```")
	if !found || strings.Count(code, "\n") != 6 {
		t.Fatalf("no six lines of Python:\n%s", code)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	rows := make([][3]float32, 50)
	for i := range rows {
		a, b, c := rng.NormFloat64(), rng.NormFloat64(), rng.NormFloat64()
		rows[i] = [3]float32{float32(10 + 8*a), float32(-3 + 0.2*b), float32(c)}
	}
	in, err := json.Marshal(rows)
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range models() {
		if m.Architecture.Kind == spec.ModelConv1D {
			continue // the code is only valid for dense layers; TestPython covers conv1d
		}
		path := filepath.Join(t.TempDir(), "model.safetensors")
		if err := os.WriteFile(path, encode(t, m), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(python, "-c", "import json, sys\nimport numpy as np\nfile = sys.argv[1]\n"+
			"x = np.array(json.load(sys.stdin))\n"+code+"\njson.dump(y.tolist(), sys.stdout)", path)
		cmd.Stdin = bytes.NewReader(in)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var want [][]float64
		if err := json.Unmarshal(out, &want); err != nil {
			t.Fatal(err)
		}
		p, err := m.Predictor()
		if err != nil {
			t.Fatal(err)
		}
		for i := range rows {
			got := p.Predict(rows[i][:])
			ours := got.ClassProbabilities
			switch len(ours) {
			case 0:
				ours = []float64{got.Value}
			case 2:
				if m.Architecture.Outputs == 1 {
					ours = ours[1:]
				}
			}
			for j, y := range want[i] {
				if d := math.Abs(ours[j] - y); !(d <= 1e-6*max(1, math.Abs(y))) {
					t.Errorf("%s: row %d: %v, numpy has %v", name, i, ours, want[i])
				}
			}
		}
	}
}

// TestGoal checks the prediction target of a model, with its unit and horizon.
func TestGoal(t *testing.T) {
	recipe := &spec.RowRecipe{Grid: spec.TimeGrid{Step: time.Hour}, Inputs: []spec.InputSeries{
		{Name: "pm25", Unit: "µg/m³", Transform: spec.TransformLog1p}, {Name: "temp", Unit: "°C"}, {Name: "count",
			Transform: spec.TransformLog1p}}}
	for target, tt := range map[string]struct {
		recipe *spec.RowRecipe
		want   modelfile.PredictionTarget
	}{
		"pm25 in 6h":  {recipe, modelfile.PredictionTarget{Unit: "log1p(µg/m³)", Horizon: 6 * time.Hour}},
		"temp in 30m": {recipe, modelfile.PredictionTarget{Unit: "°C", Horizon: 30 * time.Minute}},
		"temp":        {recipe, modelfile.PredictionTarget{Unit: "°C"}},
		"count in 1h": {recipe, modelfile.PredictionTarget{Horizon: time.Hour}},
		"y in 6h":     {nil, modelfile.PredictionTarget{}}, // the target is a column of a file
		"":            {recipe, modelfile.PredictionTarget{}},
	} {
		tt.want.TargetColumn = target
		m := &modelfile.Model{Target: target, Recipe: tt.recipe}
		if got := m.PredictionTarget(); got != tt.want {
			t.Errorf("%q: %+v, want %+v", target, got, tt.want)
		}
	}
}
