package export_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/modelfile/export"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// models returns a model of each kind and activation. Some have standardised columns with large means relative to their
// scales.
func models(t testing.TB) map[string]*modelfile.Model {
	t.Helper()
	all := map[string]*modelfile.Model{}
	architectures := map[string]learner.Architecture{
		"linear":   {Outputs: 1, Risk: spec.LossSquared, HasBias: true},
		"plain":    {Outputs: 1, Risk: spec.LossSquared},
		"huber":    {Outputs: 1, Risk: spec.LossHuber, HuberDelta: 1, HasBias: true},
		"logistic": {Outputs: 1, Risk: spec.LossLogistic, HasBias: true},
		"softmax":  {Outputs: 4, Risk: spec.LossSoftmax, HasBias: true},
		"tanh": {HiddenUnits: []int{7, 5}, Outputs: 1, Activation: spec.ActivationTanh, Risk: spec.LossSquared,
			HasBias: true},
		"relu": {HiddenUnits: []int{9}, Outputs: 3, Activation: spec.ActivationReLU, Risk: spec.LossSoftmax,
			HasBias: true},
		"autoencoder": {Kind: spec.ModelAutoencoder, HiddenUnits: []int{4, 2, 5}, Outputs: 1, HasBias: true,
			Activation: spec.ActivationTanh, Risk: spec.LossSquared},
		"raw autoencoder": {Kind: spec.ModelAutoencoder, HiddenUnits: []int{1}, Outputs: 1,
			Activation: spec.ActivationReLU, Risk: spec.LossSquared},
		"conv1d": {Kind: spec.ModelConv1D, HiddenUnits: []int{5}, Outputs: 1, HasBias: true,
			Activation: spec.ActivationTanh, Risk: spec.LossSquared,
			Convolution: spec.Convolution{InputChannels: 3, KernelSteps: 3, FiltersPerLayer: []int{4}, PoolSteps: 3}},
		"deep conv1d": {Kind: spec.ModelConv1D, HiddenUnits: []int{6}, Outputs: 3, HasBias: true,
			Activation: spec.ActivationReLU, Risk: spec.LossSoftmax,
			Convolution: spec.Convolution{InputChannels: 3, KernelSteps: 2, FiltersPerLayer: []int{5, 7},
				PoolSteps: 2}},
		"raw conv1d": {Kind: spec.ModelConv1D, Outputs: 1, Activation: spec.ActivationIdentity, Risk: spec.LossLogistic,
			Convolution: spec.Convolution{InputChannels: 1, KernelSteps: 5, FiltersPerLayer: []int{2}, PoolSteps: 1}},
		"identity": {HiddenUnits: []int{3}, Outputs: 1, Activation: spec.ActivationIdentity,
			Risk: spec.LossLogistic},
	}
	for _, loss := range spec.DeviceLossKinds() {
		// The architecture "linear" has squared loss.
		if _, known := architectures[string(loss)]; !known && loss != spec.LossSquared {
			architectures[string(loss)] = learner.Architecture{Outputs: 1, Risk: loss, HasBias: true}
		}
	}
	for name, a := range architectures {
		if a.Inputs = 3; a.Kind == spec.ModelConv1D {
			a.Inputs = 24 // 3 channels of 8 steps; pooling by 3 leaves no remainder, by 2 it leaves one step
		}
		rng := rand.New(rand.NewPCG(uint64(len(name)), 4))
		w := make([]float32, a.ParameterCount())
		for i := range w {
			w[i] = float32(rng.NormFloat64())
		}
		m := &modelfile.Model{TaskName: "air */ of the hall", Run: 3, Version: 41,
			Features: []string{"TEMP", "PRES", "u/*v"}, Target: "pm2.5", Architecture: a,
			ParameterBytes: wire.AppendVector(nil, w)}
		if a.HasBias {
			m.Standardization = learner.Standardization{Mean: []float64{20.5, 101325, 0, 40},
				Scale: []float64{7.25, 11.5, 1, 12.5}, Clip: float64(len(name) % 2 * 2)}
			if !a.Risk.StandardizesTarget() || !a.HasTarget() {
				m.Standardization.Mean[3], m.Standardization.Scale[3] = 0, 1
			}
		}
		if !a.HasTarget() {
			m.Target = ""
		}
		if a.Kind == spec.ModelConv1D {
			widen(m)
		}
		m.ParameterDigest = wire.BlobDigest(m.ParameterBytes)
		all[name] = m
	}
	return all
}

// widen repeats each of the three columns for the number of steps of the architecture.
func widen(m *modelfile.Model) {
	steps, st := m.Architecture.Inputs/3, m.Standardization
	m.Features, m.Standardization = nil, learner.Standardization{Clip: st.Clip}
	for j := range m.Architecture.Inputs {
		m.Features = append(m.Features, fmt.Sprintf("%d lag %dh", j/steps, steps-1-j%steps))
	}
	if len(st.Mean) == 0 {
		return
	}
	to := &m.Standardization
	for j := range m.Architecture.Inputs {
		to.Mean, to.Scale = append(to.Mean, st.Mean[j/steps]), append(to.Scale, st.Scale[j/steps])
	}
	to.Mean, to.Scale = append(to.Mean, st.Mean[3]), append(to.Scale, st.Scale[3])
}

// text formats rows as lines of numbers.
func text(all [][]float32) string {
	var b strings.Builder
	for _, row := range all {
		for _, v := range row {
			fmt.Fprintf(&b, "%.9g ", v)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// rows returns rows in the units of the data. Some features are clipped.
func rows(m *modelfile.Model) (all [][]float32) {
	rng := rand.New(rand.NewPCG(9, 9))
	for range 50 {
		row := make([]float32, m.Architecture.Inputs)
		for j := range row {
			row[j] = float32(rng.NormFloat64())
			if st := m.Standardization; len(st.Mean) > 0 {
				row[j] = float32(st.Mean[j] + 1.5*st.Scale[j]*rng.NormFloat64())
			}
		}
		all = append(all, row)
	}
	return all
}

// want returns the value and the outputs that learner.Predictor computes for a row.
func want(t testing.TB, p *learner.Predictor[float32], row []float32) (value float64, outputs []float64) {
	t.Helper()
	said := p.Predict(row)
	if outputs = said.ClassProbabilities; len(outputs) == 0 {
		outputs = []float64{said.Value}
	}
	return said.Value, outputs
}

// near reports whether a and b differ by at most 1e-5, relative to b for large numbers.
func near(a, b float64) bool { return math.Abs(a-b) <= 1e-5*max(1, math.Abs(b)) }

const mainC = `
#include <stdio.h>
#include "model.h"
int main(void)
{
  float row[FEDMESH_MODEL_INPUTS], out[FEDMESH_MODEL_OUTPUTS];
  for (;;) {
    for (int i = 0; i < FEDMESH_MODEL_INPUTS; i++)
      if (scanf("%f", &row[i]) != 1)
        return 0;
    printf("%.9g", fedmesh_model_predict(row, out));
    for (int i = 0; i < FEDMESH_MODEL_OUTPUTS; i++)
      printf(" %.9g", out[i]);
    puts("");
  }
}
`

// TestC checks that a C compiler accepts the header without warnings, and that its predictions match agentd.
func TestC(t *testing.T) {
	if testing.Short() {
		t.Skip("a C compiler is a process")
	}
	gcc, err := exec.LookPath("gcc")
	if err != nil && os.Getenv("CI") != "true" {
		t.Skip("gcc is not installed; `make deps` installs it")
	}
	for name, m := range models(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file, err := export.Encode(export.FormatC, m)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			for file, text := range map[string]string{"model.h": string(file), "main.c": mainC} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			program := filepath.Join(dir, "main")
			compile := exec.Command(gcc, "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O2", "-o", program,
				filepath.Join(dir, "main.c"), "-lm")
			if out, err := compile.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s\n%s", err, out, file)
			}
			all := rows(m)
			run := exec.Command(program)
			run.Stdin = strings.NewReader(text(all))
			said, err := run.Output()
			if err != nil {
				t.Fatal(err)
			}
			compare(t, m, all, string(said))
		})
	}
}

// compare checks printed lines with a value and outputs against the results of learner.Predictor.
func compare(t *testing.T, m *modelfile.Model, all [][]float32, said string) {
	t.Helper()
	p, err := m.Predictor()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(said), "\n")
	if len(lines) != len(all) {
		t.Fatalf("%d lines of %d rows", len(lines), len(all))
	}
	for i, row := range all {
		value, outputs := want(t, p, row)
		for j, x := range append([]float64{value}, outputs...) {
			var got float64
			if fields := strings.Fields(lines[i]); len(fields) != len(outputs)+1 {
				t.Fatalf("row %d: %q, want a value and %d outputs", i, lines[i], len(outputs))
			} else if _, err := fmt.Sscan(fields[j], &got); err != nil || !near(got, x) {
				t.Errorf("row %d, number %d: %s, want %v", i, j, fields[j], x)
			}
		}
	}
}

// TestWrite checks that encoding is deterministic, and that a model that cannot make predictions is rejected.
func TestWrite(t *testing.T) {
	m := models(t)["tanh"]
	for _, f := range []export.Format{export.FormatONNX, export.FormatC} {
		one, err := export.Encode(f, m)
		if err != nil {
			t.Fatal(err)
		}
		if two, _ := export.Encode(f, m); !bytes.Equal(one, two) {
			t.Errorf("%s: two files of one model differ", f)
		}
		broken := *m
		if broken.ParameterBytes = m.ParameterBytes[4:]; true {
			if _, err := export.Encode(f, &broken); err == nil {
				t.Errorf("%s: a model without one parameter is written", f)
			}
		}
	}
	if _, err := export.Encode("pickle", m); err == nil || !strings.Contains(err.Error(),
		`unknown export format "pickle"`) {
		t.Errorf("another format: %v", err)
	}
}
