package modelfile_test

import (
	"bytes"
	"encoding/json"
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

// models are one of each kind, with a target whose scale is not 1 where that means something.
func models() map[string]*modelfile.Model {
	of := func(a learner.Architecture, standardized bool) *modelfile.Model {
		a.Inputs, a.Bias = 3, a.Risk != spec.RiskHuber
		a.Outputs = max(a.Outputs, 1)
		rng := rand.New(rand.NewPCG(uint64(len(a.Hidden)), 7))
		w := make([]float32, a.Params())
		for i := range w {
			w[i] = float32(rng.NormFloat64())
		}
		t := &wire.Task{Name: "air", Features: []string{"temp", "µ", `a "b"`}, Target: "pm"}
		if standardized {
			t.Standardization = wire.Standardization{Mean: []float64{10, -3, 0.5, 80}, Scale: []float64{4, 0.1, 2, 25},
				Clip: 1.5}
			if !a.Risk.Regression() || !a.Target() {
				t.Standardization.Mean[3], t.Standardization.Scale[3] = 0, 1
			}
		}
		vector := wire.AppendVector(nil, w)
		m := modelfile.Of(t, a, vector, wire.BlobDigest(vector))
		m.Run, m.Version = 3, 17
		if len(a.Hidden) > 0 {
			m.Features, m.Target = []string{"temp lag 2h", "wd = N", "hour sin"}, "pm in 6h"
			m.Recipe = &spec.Recipe{Grid: spec.Grid{Step: time.Hour, Lateness: 10 * time.Minute, Zone: "Europe/Berlin"},
				Inputs: []spec.Input{{Name: "temp", Unit: "°C", Range: []float64{-50, 60}, Join: spec.JoinMean,
					Scale: spec.ScaleNone, Stuck: 90 * time.Minute}, {Name: "pm", Join: spec.JoinMax, Jump: 0.5,
					Scale: spec.ScaleLog1p},
					{Name: "wd", Join: spec.JoinLast, Scale: spec.ScaleNone, Classes: []string{"N", "S"}}}}
		}
		if !a.Target() {
			m.Target = ""
		}
		return m
	}
	type arch = learner.Architecture
	return map[string]*modelfile.Model{
		"linear": of(arch{Risk: spec.RiskSquared}, true), "plain": of(arch{Risk: spec.RiskSquared}, false),
		"huber":    of(arch{Risk: spec.RiskHuber, HuberDelta: 1}, true),
		"logistic": of(arch{Risk: spec.RiskLogistic}, true),
		"softmax":  of(arch{Risk: spec.RiskSoftmax, Outputs: 4}, true),

		"tanh": of(arch{Risk: spec.RiskSquared, Hidden: []int{5, 4}, Activation: spec.ActivationTanh}, true),
		"relu": of(arch{Risk: spec.RiskSoftmax, Outputs: 2, Hidden: []int{6}, Activation: spec.ActivationReLU}, true),
		"autoencoder": of(arch{Kind: spec.ModelAutoencoder, Risk: spec.RiskSquared, Hidden: []int{4, 2, 4},
			Activation: spec.ActivationTanh}, true),
	}
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

// TestPersonal: a file without the tensors that are each device's own has the others, and predicts nothing.
func TestPersonal(t *testing.T) {
	m := *models()["tanh"]
	parts := m.Architecture.Parts([]string{"layer1"})
	w := make([]float32, len(m.Vector)/4)
	if err := wire.DecodeVector(w, m.Vector); err != nil {
		t.Fatal(err)
	}
	shared := make([]float32, parts.Shared())
	learner.Split(shared, nil, parts, w)
	m.Personal, m.Vector = []string{"layer1"}, wire.AppendVector(nil, shared)
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
	if _, err := modelfile.Decode(file); err == nil || !strings.Contains(err.Error(), "each device's own") {
		t.Errorf("error %v", err)
	}
}

// TestEarlier: a file from before the keys run, hash and kind is read.
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
	if err != nil || got.Hash != m.Hash || got.Run != 0 || got.Version != 17 {
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
		}, `kind is "forest"`},
		"no risk": {func(all []store.Tensor, meta map[string]string) []store.Tensor {
			delete(meta, "risk")
			return all
		}, "risk"},
		"too few means": {func(all []store.Tensor, meta map[string]string) []store.Tensor {
			meta["mean"], meta["scale"] = "[1,2]", "[1,2]"
			return all
		}, "standardization of 1 features"},
		"a column less": {func(all []store.Tensor, meta map[string]string) []store.Tensor {
			meta["features"] = `["a","b"]`
			return all
		}, "want F32 [1 2]"},
	} {
		tensors, meta, err := store.DecodeSafetensors(encode(t, models()["linear"]))
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

// TestNumpy runs the lines of docs/MODEL.md, and compares them with our predictions.
func TestNumpy(t *testing.T) {
	python := testkit.Numpy(t)
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
			ours := got.Classes
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
