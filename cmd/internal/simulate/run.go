package simulate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/fedmesh/fedmesh/sim"
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

// Run simulates the experiment and writes what it found. After a divergence it writes what was found before it, and returns it
// as the error.
func Run(ctx context.Context, o Options) error {
	e, err := o.experiment()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.Out, 0o777); err != nil { // better now than after the run
		return fmt.Errorf("--out: %w", err)
	}
	p := newProgress(o.Stdout)
	fmt.Fprintln(o.Stdout, describe(&e))
	result, err := p.follow(func(observer sim.Observer) (*sim.Result, error) { return sim.Run(ctx, e, observer) })
	var diverged *sim.Divergence
	if err != nil && !errors.As(err, &diverged) {
		if ctx.Err() != nil {
			err = errors.New("interrupted")
		}
		return err
	}
	if writeErr := write(o.Out, result); writeErr != nil {
		return errors.Join(writeErr, err)
	}
	summarise(o.Stdout, result, o.Out)
	if diverged != nil {
		return fmt.Errorf("%w; what was found before it is in %s", err, o.Out)
	}
	return nil
}

// experiment is that of the file, or of the folder that is replayed.
func (o *Options) experiment() (sim.Experiment, error) {
	if o.Load != "" {
		return sim.Dumped(o.Load)
	}
	e, err := Load(o.Config, o.Set)
	e.Dump = o.Dump
	return e, err
}

// describe is the experiment in a line.
func describe(e *sim.Experiment) string {
	agents := "all agents"
	if e.Participants > 0 {
		agents = fmt.Sprintf("%d of the agents", e.Participants)
		if e.Agents > 0 {
			agents = fmt.Sprintf("%d of %d agents", e.Participants, e.Agents)
		}
	}
	return fmt.Sprintf("%s: %s on %s data, %s a round, %d rounds, %d runs, seed %d, %s",
		e.Name, e.Algorithm, e.Data.Kind, agents, e.Rounds, e.Runs, e.Seed, e.Precision)
}

// summarise prints the metrics at the start and at the end.
func summarise(w io.Writer, r *sim.Result, out string) {
	if len(r.Rounds) == 0 {
		return
	}
	last := len(r.Rounds) - 1
	fmt.Fprintf(w, "%-20s %14s %14s %12s\n", "", fmt.Sprintf("round %d", r.Rounds[0]), fmt.Sprintf("round %d", r.Rounds[last]), "± (95 %)")
	for _, m := range r.Metrics {
		ci := "-"
		if m.CI95 != nil {
			ci = fmt.Sprintf("%.2g", m.CI95[last])
		}
		fmt.Fprintf(w, "%-20s %14.6g %14.6g %12s\n", m.Name, m.Mean[0], m.Mean[last], ci)
	}
	fmt.Fprintf(w, "result.json, curves.csv and the plots are in %s\n", out)
}
