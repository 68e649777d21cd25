package simulate

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/fedmesh/fedmesh/lab/sim"
)

// Options holds the flags of the command.
type Options struct {
	Config string            // path of the experiment's file
	Set    map[string]string // values set on the command line, by key
	Out    string            // output folder
	Dump   string            // folder to which the instance and all draws are written; empty writes none
	Load   string            // folder from which the instance and draws are loaded; empty loads none

	Stdout, Stderr io.Writer
}

// Run runs the experiment and writes its results. If the run diverges, Run writes the results up to that point and
// returns an error.
func Run(ctx context.Context, o Options) error {
	e, err := o.experiment()
	if err != nil {
		return err
	}
	// create the folder first, so that a failure is reported before the simulation
	if err := os.MkdirAll(o.Out, 0o777); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	fmt.Fprintln(o.Stdout, describe(&e))
	result, err := o.followed(ctx, e)
	if result == nil {
		return err
	}
	if writeErr := errors.Join(writeNumbers(o.Out, result), writePictures(o.Out, result)); writeErr != nil {
		return errors.Join(writeErr, err)
	}
	summarise(o.Stdout, result)
	if other, mixes := baseline(e); mixes && err == nil {
		err = o.compare(ctx, other, result)
	}
	var diverged *sim.Divergence
	if errors.As(err, &diverged) {
		return fmt.Errorf("%w; the results so far are in %s", err, o.Out)
	}
	if err == nil {
		fmt.Fprintf(o.Stdout, "result.json, curves.csv and the pictures are in %s\n", o.Out)
	}
	return err
}

// followed runs the simulation. If the problem comes from a file of quadratic risks, it also writes the state of the
// first run after each round to a file.
func (o *Options) followed(ctx context.Context, e sim.Experiment) (*sim.Result, error) {
	if e.Data.Quadratics == "" {
		return o.simulate(ctx, e)
	}
	f, err := os.Create(filepath.Join(o.Out, "trajectory.jsonl"))
	if err != nil {
		return nil, err
	}
	w := bufio.NewWriter(f)
	lines := json.NewEncoder(w)
	e.Trajectory = func(at sim.State) error { return lines.Encode(at) }
	result, err := o.simulate(ctx, e)
	return result, errors.Join(err, w.Flush(), f.Close())
}

// simulate runs an experiment and shows its progress. If the run diverges, it returns both a result and an error.
func (o *Options) simulate(ctx context.Context, e sim.Experiment) (*sim.Result, error) {
	r, err := newProgress(o.Stdout).follow(func(observer sim.Observer) (*sim.Result,
		error) {
		return sim.Run(ctx, e, observer)
	})
	if ctx.Err() != nil {
		return nil, errors.New("interrupted")
	}
	return r, err
}

// compare runs FedAvg for comparison with FedDec and plots both.
func (o *Options) compare(ctx context.Context, e sim.Experiment, feddec *sim.Result) error {
	fmt.Fprintln(o.Stdout, "\nFedAvg on the same data with the same draws:")
	fedavg, err := o.simulate(ctx, e)
	if fedavg == nil {
		return err
	}
	dir := filepath.Join(o.Out, "fedavg")
	if mkdirErr := os.MkdirAll(dir, 0o777); mkdirErr != nil {
		return errors.Join(mkdirErr, err)
	}
	if writeErr := errors.Join(writeNumbers(dir, fedavg), writeComparison(o.Out, feddec, fedavg)); writeErr != nil {
		return errors.Join(writeErr, err)
	}
	summarise(o.Stdout, fedavg)
	return err
}

// describe returns a one-line description of the experiment.
func describe(e *sim.Experiment) string {
	agents := "all agents"
	if e.Participants.File != "" {
		agents = "the agents of " + e.Participants.File
	} else if e.Participants.Count > 0 {
		agents = fmt.Sprintf("%d of the agents", e.Participants.Count)
		if e.Agents > 0 {
			agents = fmt.Sprintf("%d of %d agents", e.Participants.Count, e.Agents)
		}
	}
	return fmt.Sprintf("%s: %s on %s data, %s per round, %d rounds, %d runs, seed %d, %s",
		e.Name, e.Algorithm, e.Data.Kind, agents, e.Rounds, e.Runs, e.Seed, e.Precision)
}

// summarise prints the first and the last value of each metric.
func summarise(w io.Writer, r *sim.Result) {
	if len(r.Rounds) == 0 {
		return
	}
	last := len(r.Rounds) - 1
	fmt.Fprintf(w, "%-20s %14s %14s %12s\n",
		"", fmt.Sprintf("round %d", r.Rounds[0]), fmt.Sprintf("round %d", r.Rounds[last]), "± (95 %)")
	for _, m := range r.Metrics {
		ci := "-"
		if m.CI95 != nil {
			ci = fmt.Sprintf("%.2g", m.CI95[last])
		}
		fmt.Fprintf(w, "%-20s %14.6g %14.6g %12s\n", m.Name, m.Mean[0], m.Mean[last], ci)
	}
}
