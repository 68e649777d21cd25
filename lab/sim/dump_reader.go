package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fedmesh/fedmesh/lab/npy"
	"github.com/fedmesh/fedmesh/lab/sim/data"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/spec"
)

// LoadDump returns the experiment of a dump. [Run] replays the recorded problems and draws, and ignores Data. If the
// dump has no draws, [Run] makes new draws with the seed of the experiment.
func LoadDump(dir string) (Experiment, error) {
	e := Default()
	path := filepath.Join(dir, fileExperiment)
	if err := decodeFile(path, &e); err != nil {
		return e, err
	}
	e.Load = dir
	err := e.validate()
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return e, err
}

func decodeFile(path string, into any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// arrayReader reads the arrays of a folder and keeps the first error.
type arrayReader struct {
	dir string
	err error
}

// readArray reads an array and checks its shape; −1 matches any length. readArray returns nil if the file does not
// exist.
func readArray[T npy.Element](l *arrayReader, name string, want ...int) (numbers []T, shape []int) {
	if l.err != nil {
		return nil, nil
	}
	path := filepath.Join(l.dir, name+".npy")
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		defer f.Close()
		numbers, shape, err = npy.Read[T](f)
	}
	fits := len(shape) == len(want)
	for i := range min(len(shape), len(want)) {
		fits = fits && (want[i] < 0 || want[i] == shape[i])
	}
	if err == nil && !fits {
		err = fmt.Errorf("has shape %v; want %v (-1 = any)", shape, want)
	}
	if err != nil {
		l.err = fmt.Errorf("%s: %w", path, err)
	}
	return numbers, shape
}

// takeFloats reads an array and converts it to the model's type.
func takeFloats[T learner.Float](l *arrayReader, name string, want ...int) []T {
	var v []T
	switch any(v).(type) {
	case []float32:
		got, _ := readArray[float32](l, name, want...)
		v, _ = any(got).([]T)
	case []float64:
		got, _ := readArray[float64](l, name, want...)
		v, _ = any(got).([]T)
	}
	return v
}

// loaded returns a function that reads the instance of a run from a dump.
func loaded[T learner.Float](e Experiment) func(run int) (Instance[T], error) {
	return func(run int) (Instance[T], error) {
		l := &arrayReader{dir: runDir(e.Load, run)}
		var file problemFile
		if err := decodeFile(filepath.Join(l.dir, fileProblem), &file); err != nil {
			return Instance[T]{}, err
		}
		model, err := file.Model.architecture()
		if err == nil && (file.Agents < 1 || file.Agents > maxAgents) {
			err = fmt.Errorf("agents is %d; want 1 to %d", file.Agents, maxAgents)
		}
		if err != nil {
			return Instance[T]{}, fmt.Errorf("%s: %w", filepath.Join(l.dir, fileProblem), err)
		}
		in := Instance[T]{Problem: restore[T](l, &file, model)}
		in.replay = &drawReplay[T]{inputs: model.Inputs, params: model.ParameterCount()}
		in.replay.read(l)
		in.replay.buckets, _ = readArray[int64](l, arrayBuckets, file.Agents)
		for k, b := range in.replay.buckets {
			if l.err == nil && (b < 0 || b >= rule.BucketCount) {
				l.err = fmt.Errorf("%s: buckets.npy: agent %d is in bucket %d; want 0 to %d", l.dir, k, b,
					rule.BucketCount-1)
			}
		}
		if l.err == nil && e.Algorithm == spec.FedDec {
			in.Mixing, in.replay.weights = l.mixing(&e, file.Agents)
			in.replay.lacksLinkModel = in.replay.weights != nil && !l.has(fileGraph)
		}
		switch r := in.replay; {
		case l.err != nil:
			return in, l.err
		case !r.empty():
			if err := r.index(file.Agents); err != nil {
				return in, fmt.Errorf("%s: %w", l.dir, err)
			}
			if err := checkServerDraws(&e, in); err != nil {
				return in, fmt.Errorf("%s: %w", l.dir, err)
			}
		case r.weights != nil:
			return in, fmt.Errorf("%s: W.npy has a matrix for each iteration, which requires draws, but steps.npy or "+
				"participants.npy is missing", l.dir)
		default:
			in.replay = nil
		}
		return in, nil
	}
}

// checkServerDraws returns an error if the recorded draws do not match FedDec's server rounds, or if the link failures
// are unknown.
func checkServerDraws[T learner.Float](e *Experiment, in Instance[T]) error {
	if e.Algorithm != spec.FedDec {
		return nil
	}
	for t := 1; t < e.Rounds; t++ {
		if len(in.replay.places[t]) > 0 && !e.Mixing.isServerIteration(t) {
			return fmt.Errorf("participants.npy has participants in iteration %d, but the server does not average in "+
				"it: mixing.server_every is %d and mixing.first_block is %d",
				t, e.Mixing.ServerEvery, e.Mixing.FirstBlock)
		}
	}
	if e.Mixing.LinkUp < 1 && in.Mixing != nil && in.replay.weights == nil && e.Rounds > 1 {
		return &spec.FieldError{Key: "mixing.link_up", Problem: fmt.Sprintf(
			"is %v, but W.npy does not have a matrix for each of the %d iterations", e.Mixing.LinkUp, e.Rounds-1)}
	}
	return nil
}

// restore returns the problem of a dump.
func restore[T learner.Float](l *arrayReader, file *problemFile, model learner.Architecture) *data.Problem[T] {
	inputs, params := model.Inputs, model.ParameterCount()
	r := data.Restored[T]{Model: model, Agents: file.Agents, Weights: file.Weights, Minimum: file.Minimum,
		Variance: file.Variance}
	r.Start, _ = readArray[float64](l, arrayStart, params)
	r.Minimizer, _ = readArray[float64](l, arrayMinimizer, params)
	r.Hessian, _ = readArray[float64](l, arrayHessian, params, params)
	means, _ := readArray[float64](l, arrayMeans, file.Agents, inputs)
	r.Means = unflatten(means, inputs)
	r.Linear = l.linear(file.Agents, inputs)
	rows, _ := readArray[int64](l, arrayRows, file.Agents)
	x, y := takeFloats[T](l, arrayX, -1, inputs), takeFloats[T](l, arrayY, -1)
	at := 0
	for k, n := range rows {
		if n < 1 || n > int64(len(y)-at) || (at+int(n))*inputs > len(x) {
			l.err = errors.Join(l.err,
				fmt.Errorf("%s: rows.npy: agent %d has %d rows, but x.npy and y.npy have %d in total", l.dir, k, n,
					len(y)))
			break
		}
		r.Held = append(r.Held, learner.NewSamples(inputs, x[at*inputs:(at+int(n))*inputs], y[at:at+int(n)]))
		at += int(n)
	}
	if l.err != nil {
		return nil
	}
	p, err := data.Restore(r)
	if err != nil {
		l.err = fmt.Errorf("%s: %w", l.dir, err)
		return nil
	}
	if file.StrongConvexity != 0 {
		p.Objective.StrongConvexity = file.StrongConvexity
	}
	if file.Smoothness != 0 {
		p.Objective.Smoothness = file.Smoothness
	}
	return p
}

// read reads all recorded draws.
func (p *drawReplay[T]) read(l *arrayReader) {
	p.participants, _ = readArray[int64](l, arrayParticipants, -1, 3)
	p.steps, _ = readArray[int64](l, arraySteps, -1, 3)
	p.scale, _ = readArray[float64](l, arrayScale, -1)
	p.batch, _ = readArray[int64](l, arrayBatch, -1)
	p.rows, _ = readArray[int64](l, arraySampleRows, -1)
	p.x, p.y = takeFloats[T](l, arraySampleX, -1, p.inputs), takeFloats[T](l, arraySampleY, -1)
	p.noise = takeFloats[T](l, arrayNoise, -1, p.params)
}

// linear reads the parameters of a linear problem. linear returns nil if the dump has no optima.
func (l *arrayReader) linear(agents, inputs int) *data.Linear {
	optima, _ := readArray[float64](l, arrayOptima, agents, inputs)
	regressors, shape := readArray[float64](l, arrayRegressors, -1, -1)
	noise, _ := readArray[float64](l, arrayNoiseVar, -1)
	if optima == nil || l.err != nil {
		return nil
	}
	if len(shape) != 2 || shape[0] != 1 && shape[0] != agents || shape[1] != 1 && shape[1] != inputs {
		l.err = fmt.Errorf("%s: regressors.npy has shape %v; want 1 or %d rows of 1 or %d numbers", l.dir, shape,
			agents, inputs)
	} else if n := len(noise); n != 1 && n != agents {
		l.err = fmt.Errorf("%s: noise_var.npy has %d numbers; want 1 or %d", l.dir, n, agents)
	} else {
		return &data.Linear{Inputs: inputs, Optima: unflatten(optima, inputs),
			Regressors: unflatten(regressors, shape[1]), Noise: noise}
	}
	return nil
}

func unflatten(numbers []float64, width int) (rows [][]float64) {
	for at := 0; at < len(numbers); at += width {
		rows = append(rows, numbers[at:at+width])
	}
	return rows
}
