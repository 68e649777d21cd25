package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fedmesh/fedmesh/lab/npy"
	"github.com/fedmesh/fedmesh/lab/sim/data"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// Files of a dump: experiment.json, and for each run a folder with problem.json and arrays. Empty arrays are omitted.
// docs/SIMULATION.md describes the contents.
const (
	fileExperiment = "experiment.json"
	fileProblem    = "problem.json"
	fileGraph      = "graph.json" // graph file with weights

	arrayStart        = "start"        // initial model w_0, shape [d]
	arrayMinimizer    = "minimizer"    // minimiser w⁰ of the risk, shape [d]
	arrayHessian      = "hessian"      // Hessian of a quadratic risk J, shape [d, d]
	arrayOptima       = "optima"       // optimum of each agent, shape [K, M]; linear problems only
	arrayRegressors   = "regressors"   // variances of the regressors, shape [1 or K, 1 or M]
	arrayNoiseVar     = "noise_var"    // noise variances, shape [1 or K]
	arrayMeans        = "means"        // class means, shape [K, M]; logistic and bilinear problems only
	arrayX            = "x"            // features of all agents' rows, shape [rows, M]
	arrayY            = "y"            // targets of all agents' rows, shape [rows]
	arrayRows         = "rows"         // number of rows of each agent, shape [K]
	arrayBuckets      = "buckets"      // aggregation bucket of each agent, shape [K]
	arrayW            = "W"            // mixing matrix, shape [n, n], or [T−1, n, n] if links can fail
	arrayParticipants = "participants" // round, agent and draw count of each participant, shape [·, 3]
	arraySteps        = "steps"        // round, agent and number of each local step, shape [S, 3]
	arrayScale        = "scale"        // scale of the gradient in each step, shape [S]
	arrayBatch        = "batch"        // number of samples in each step, shape [S]; 0 means all rows
	arraySampleRows   = "sample_rows"  // row number of each sample from stored rows, shape [samples]
	arraySampleX      = "sample_x"     // features of each sample from a stream, shape [samples, M]
	arraySampleY      = "sample_y"     // target of each sample from a stream, shape [samples]
	arrayNoise        = "noise"        // gradient noise in each step, shape [S, d]
	arrayFinal        = "final"        // final model, shape [d]; a replay does not read it
)

// clearRun removes the files of an earlier dump from a run's folder, so that a replay does not mix two dumps.
// problem.json is removed first and written last, so that an incomplete dump is detected.
func clearRun(dir string) error {
	files := []string{fileProblem, fileGraph}
	for _, name := range []string{arrayStart, arrayMinimizer, arrayHessian, arrayOptima, arrayRegressors, arrayNoiseVar,
		arrayMeans, arrayX, arrayY, arrayRows, arrayBuckets,
		arrayW, arrayParticipants, arraySteps, arrayScale, arrayBatch, arraySampleRows, arraySampleX, arraySampleY,
		arrayNoise, arrayFinal} {
		files = append(files, name+".npy")
	}
	for _, file := range files {
		if err := os.Remove(filepath.Join(dir, file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func runDir(dir string, run int) string { return filepath.Join(dir, fmt.Sprintf("run-%04d", run)) }

// writeExperiment removes earlier runs from the dump folder and writes experiment.json.
func writeExperiment(e *Experiment) error {
	for run := range e.Runs {
		if err := clearRun(runDir(e.Dump, run)); err != nil {
			return err
		}
	}
	text, err := json.MarshalIndent(e, "", " ")
	if err == nil {
		err = os.MkdirAll(e.Dump, 0o777)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(e.Dump, fileExperiment), append(text, '\n'), 0o666)
	}
	return err
}

// checkDumpSize returns an error if the problem is too large for a dump. The size of the draws is checked while they
// are recorded.
func checkDumpSize[T learner.Float](c *runConstants[T]) error {
	p := c.in.Problem
	numbers, key := 0.0, "agents"
	if p.Linear != nil || p.Classes != nil {
		numbers = float64(p.Agents) * float64(p.Model.Inputs)
	}
	load := p.Loader(nil)
	for k := 0; k < p.Agents && numbers <= maxDumpNumbers; k++ {
		s := load(k).Samples
		if s == nil {
			break // The agents draw new samples and store no rows.
		}
		numbers += float64(s.Len()) * float64(p.Model.Inputs+1)
	}
	if c.in.Mixing != nil {
		matrix := float64(p.Agents) * float64(p.Agents)
		if c.e.Mixing.LinkUp < 1 && matrix <= maxDumpNumbers {
			matrix, key = matrix*float64(c.e.Rounds-1), "rounds"
		}
		numbers += matrix
	}
	if numbers > maxDumpNumbers {
		return &spec.FieldError{Key: key,
			Problem: fmt.Sprintf("results in a dump of more than %d numbers: reduce it", maxDumpNumbers)}
	}
	return nil
}

// arrays writes the arrays of a folder and collects errors.
type arrays struct {
	dir  string
	errs []error
}

// writeArray writes an array unless it is empty.
func writeArray[T npy.Element](a *arrays, name string, numbers []T, shape ...int) {
	if len(numbers) == 0 {
		return
	}
	f, err := os.Create(filepath.Join(a.dir, name+".npy"))
	if err == nil {
		err = errors.Join(npy.Write(f, numbers, shape...), f.Close())
	}
	a.errs = append(a.errs, err)
}

// putFloats writes a float32 or float64 array, depending on the number type T of the model.
func putFloats[T learner.Float](a *arrays, name string, numbers []T, shape ...int) {
	switch v := any(numbers).(type) {
	case []float32:
		writeArray(a, name, v, shape...)
	case []float64:
		writeArray(a, name, v, shape...)
	}
}

// dump writes the instance and all draws of a run.
func (t *drawRecorder[T]) dump(c *runConstants[T], run int, final []float64) error {
	a := &arrays{dir: runDir(c.e.Dump, run)}
	if err := errors.Join(t.checkCapacity(), os.MkdirAll(a.dir, 0o777)); err != nil {
		return err
	}
	p := c.in.Problem
	inputs, params := p.Model.Inputs, p.Model.ParameterCount()
	file := problemFile{
		Agents: p.Agents, Model: modelFile(p.Model), Weights: p.Weights, Minimum: p.Objective.Minimum,
		StrongConvexity: p.Objective.StrongConvexity, Smoothness: p.Objective.Smoothness,
	}
	putFloats(a, arrayStart, c.start(), params)
	writeArray(a, arrayMinimizer, p.Objective.Minimizer, len(p.Objective.Minimizer))
	if h := p.Objective.Hessian; h != nil {
		writeArray(a, arrayHessian, h(), params, params)
	}
	if p.Classes != nil {
		file.Variance = p.Classes.Variance
		writeArray(a, arrayMeans, flatten(p.Classes.Means), p.Agents, inputs)
	}
	if p.Linear != nil {
		l := p.Linear()
		writeArray(a, arrayOptima, flatten(l.Optima), p.Agents, inputs)
		writeArray(a, arrayRegressors, flatten(l.Regressors), len(l.Regressors), len(l.Regressors[0]))
		writeArray(a, arrayNoiseVar, l.Noise, len(l.Noise))
	}
	writeStoredRows(a, p)
	if m := c.in.Mixing; m != nil {
		putMixing(a, c, t.weights)
	}
	buckets := make([]int64, p.Agents)
	for k := range buckets {
		buckets[k] = int64(c.bucket(k))
	}
	writeArray(a, arrayBuckets, buckets, p.Agents)
	writeArray(a, arrayParticipants, t.participants, len(t.participants)/3, 3)
	steps := len(t.steps) / 3
	writeArray(a, arraySteps, t.steps, steps, 3)
	writeArray(a, arrayScale, t.scale, steps)
	writeArray(a, arrayBatch, t.batch, steps)
	writeArray(a, arraySampleRows, t.rows, len(t.rows))
	putFloats(a, arraySampleX, t.x, len(t.y), inputs)
	putFloats(a, arraySampleY, t.y, len(t.y))
	putFloats(a, arrayNoise, t.noise, steps, params)
	writeArray(a, arrayFinal, final, params)
	text, err := json.MarshalIndent(file, "", " ")
	if err == nil {
		err = os.WriteFile(filepath.Join(a.dir, fileProblem), append(text, '\n'), 0o666)
	}
	return errors.Join(append(a.errs, err)...)
}

// writeStoredRows writes the stored rows of all agents.
func writeStoredRows[T learner.Float](a *arrays, p *data.Problem[T]) {
	var x, y []T
	var rows []int64
	load := p.Loader(nil)
	for k := range p.Agents {
		s := load(k).Samples
		if s == nil {
			return
		}
		all := s.All()
		x, y, rows = append(x, all.X...), append(y, all.Y...), append(rows, int64(s.Len()))
	}
	putFloats(a, arrayX, x, len(y), p.Model.Inputs)
	putFloats(a, arrayY, y, len(y))
	writeArray(a, arrayRows, rows, len(rows))
}

// putMixing writes the graph and the mixing matrix W, or one matrix per iteration if links fail.
func putMixing[T learner.Float](a *arrays, c *runConstants[T], perStep []float64) {
	m := c.in.Mixing
	n, edges := c.agents, len(m.EdgeWeights)
	a.errs = append(a.errs, os.WriteFile(filepath.Join(a.dir, fileGraph), append(m.Graph.JSON(m.EdgeWeights), '\n'),
		0o666))
	if c.e.Mixing.LinkUp == 1 || edges == 0 {
		writeArray(a, arrayW, matrix(c, m.EdgeWeights), n, n)
		return
	}
	var all []float64
	for at := 0; at < len(perStep); at += edges {
		all = append(all, matrix(c, perStep[at:at+edges])...)
	}
	writeArray(a, arrayW, all, len(perStep)/edges, n, n)
}

// matrix returns the mixing matrix W for the given edge weights. Each diagonal element is chosen so that the row sums
// to 1.
func matrix[T learner.Float](c *runConstants[T], weights []float64) []float64 {
	n := c.agents
	w := make([]float64, n*n)
	for i := range n {
		w[i*n+i] = 1
	}
	for k, e := range c.in.Mixing.Graph.Edges() {
		w[e.I*n+e.J], w[e.J*n+e.I] = weights[k], weights[k]
		w[e.I*n+e.I] -= weights[k]
		w[e.J*n+e.J] -= weights[k]
	}
	return w
}

func flatten(rows [][]float64) []float64 {
	var all []float64
	for _, row := range rows {
		all = append(all, row...)
	}
	return all
}
