package modelfile_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/fedmesh/fedmesh/modelfile"
)

var update = flag.Bool("update", false, "write the files that the Python package is tested with")

// predictions contains the predictions of all models for the same rows.
type predictions struct {
	Rows    [][]float32            `json:"rows"` // a model with n features uses the first n columns
	Values  map[string][]float64   `json:"values"`
	Classes map[string][][]float64 `json:"classes"` // class probabilities, for classification models
}

// TestPython checks that the golden files of packaging/python contain the model files and predictions that the current
// program creates.
func TestPython(t *testing.T) {
	const folder = "../packaging/python/tests/golden"
	rng := rand.New(rand.NewPCG(1, 2))
	now := predictions{Values: map[string][]float64{}, Classes: map[string][][]float64{}}
	for range 20 {
		a, b, c := rng.NormFloat64(), rng.NormFloat64(), rng.NormFloat64()
		now.Rows = append(now.Rows, []float32{float32(10 + 8*a), float32(-3 + 0.2*b), float32(c)})
	}
	for i := range now.Rows {
		for j := len(now.Rows[i]); j < width; j++ { // fill the row with values of the two channels of a conv1d model
			mean, scale := 10., 4.
			if j >= width/2 {
				mean, scale = -3, 0.1
			}
			now.Rows[i] = append(now.Rows[i], float32(mean+scale*rng.NormFloat64()))
		}
	}
	for name, m := range models() {
		path := filepath.Join(folder, name+".safetensors")
		file := encode(t, m)
		if *update {
			if err := os.WriteFile(path, file, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if golden, err := os.ReadFile(path); err != nil || !bytes.Equal(golden, file) {
			t.Errorf("%s (error %v) is not what we write: see what has changed, then go test ./modelfile -update",
				path, err)
		}
		now.add(t, name, m)
	}
	path := filepath.Join(folder, "predictions.json")
	if *update {
		text, err := json.Marshal(now)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	now.compare(t, path)
}

func (p *predictions) add(t *testing.T, name string, m *modelfile.Model) {
	t.Helper()
	of, err := m.Predictor()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range p.Rows {
		got := of.Predict(row[:len(m.Features)])
		p.Values[name] = append(p.Values[name], got.Value)
		if len(got.ClassProbabilities) > 0 {
			p.Classes[name] = append(p.Classes[name], append([]float64(nil), got.ClassProbabilities...))
		}
	}
}

// compare compares p with the predictions in a file. The last bits may differ, because they depend on the processor.
func (p *predictions) compare(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var golden predictions
	if err := json.Unmarshal(text, &golden); err != nil {
		t.Fatal(err)
	}
	near := func(name string, golden, now []float64) {
		t.Helper()
		if len(golden) != len(now) {
			t.Errorf("%s: %d numbers, %s has %d", name, len(now), path, len(golden))
			return
		}
		for i, v := range golden {
			if !(math.Abs(v-now[i]) <= 1e-5*max(1, math.Abs(v))) {
				t.Errorf("%s: number %d is %v, %s has %v", name, i, now[i], path, v)
			}
		}
	}
	for i := range golden.Rows {
		for j, v := range golden.Rows[i] {
			near("rows", []float64{float64(v)}, []float64{float64(p.Rows[i][j])})
		}
	}
	for name := range p.Values {
		near(name, golden.Values[name], p.Values[name])
		for i := range p.Classes[name] {
			near(name, golden.Classes[name][i], p.Classes[name][i])
		}
	}
}
