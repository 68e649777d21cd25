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

// Options are the flags of the command.
type Options struct {
	Config string            // path of the experiment's file
	Set    map[string]string // keys that the command line sets
	Out    string            // folder of the results
	Dump   string            // folder for the instance and all draws; empty = none
	Load   string            // folder to take them from; empty = none

	Stdout, Stderr io.Writer
}

// Run simulates the experiment and writes what it found. After a divergence it writes what was found before it, and
// returns it as the error.
func Run(ctx context.Context, o Options) error {
	e, err := o.experiment()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.Out, 0o777); err != nil { // better now than after the run
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
		return fmt.Errorf("%w; what was found before it is in %s", err, o.Out)
	}
	if err == nil {
		fmt.Fprintf(o.Stdout, "result.json, curves.csv and the pictures are in %s\n", o.Out)
	}
	return err
}

// followed is simulate, which of an instance from a file writes where the first run stands after each round.
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

// simulate runs an experiment and shows how far it is. With a divergence it returns both, a result and an error.
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

// compare runs FedAvg beside FedDec, and draws both.
func (o *Options) compare(ctx context.Context, e sim.Experiment, feddec *sim.Result) error {
	fmt.Fprintln(o.Stdout, "\nFedAvg on the same data, with the same draws:")
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

// describe is the experiment in a line.
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
	return fmt.Sprintf("%s: %s on %s data, %s a round, %d rounds, %d runs, seed %d, %s",
		e.Name, e.Algorithm, e.Data.Kind, agents, e.Rounds, e.Runs, e.Seed, e.Precision)
}

// summarise prints the metrics at the start and at the end.
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
