package testbed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Options configures a testbed.
type Options struct {
	Dir    string // new folder for all files; "" means a temporary folder
	Bin    string // folder of the programs agentd and coordinator; "" means the folder of the running program
	Agents int    // number of agents, at least 6
	TLS    bool   // true if clients authenticate with TLS certificates instead of passwords
	// Cluster runs several coordinators with one leader, and NATS servers that keep their state.
	Cluster bool
	For     time.Duration // maximum duration of Up; 0 means no limit
	Limit   time.Duration // maximum duration of Check
	Stdout  io.Writer

	tools *tools   // installed third-party programs; nil means to search for them
	needs []string // names of programs that must be installed
}

// Defaults returns the default options.
func Defaults() Options { return Options{Agents: 20, Limit: 5 * time.Minute} }

// Validate returns an error if an option is out of range.
func (o *Options) Validate() error {
	if o.Agents < 6 {
		return fmt.Errorf("--agents must be at least 6, but is %d", o.Agents)
	}
	if o.For < 0 {
		return fmt.Errorf("--for must not be negative, but is %s", o.For)
	}
	return nil
}

// Files creates the folder with keys, certificates and configurations. Files starts no processes.
func Files(o Options) error {
	if o.Dir == "" {
		return errors.New("--dir is missing: set it to a new folder for the files")
	}
	o.needs = []string{"mosquitto"}
	_, err := layOut(context.Background(), o)
	return err
}

// Up runs the testbed for o.For or until the context ends. At the end it saves the newest model and the history.
func Up(ctx context.Context, o Options) error {
	if o.For > 0 {
		var done context.CancelFunc
		ctx, done = context.WithTimeout(ctx, o.For)
		defer done()
	}
	return work(ctx, o, (*bed).hold, (*bed).keep)
}

// Check runs the testbed until all Prometheus targets are up, rounds advance, and all queries of the shipped dashboards
// and rules return data. After o.Limit it returns an error that lists the problems.
func Check(ctx context.Context, o Options) error {
	o.needs = []string{"prometheus"}
	return work(ctx, o, (*bed).check, func(*bed) error { return nil })
}

// work starts a testbed and calls do. After that, work stops the testbed, and calls then while the files of the testbed
// still exist.
func work(ctx context.Context, o Options, do func(*bed, context.Context) error, then func(*bed) error) error {
	b, err := layOut(ctx, o)
	if err != nil {
		return err
	}
	defer b.remove()
	go b.grow()
	if err = b.start(ctx); err == nil {
		err = do(b, ctx)
	}
	b.stop()
	return errors.Join(err, then(b))
}

// hold prints which processes run and waits until the context ends or a process ends.
func (b *bed) hold(ctx context.Context) error {
	if ctx.Err() == nil {
		b.tell(b.Stdout)
	}
	<-b.running.Context().Done()
	if ctx.Err() == nil {
		return context.Cause(b.running.Context())
	}
	_, err := fmt.Fprintln(b.Stdout, "\nstopping")
	return err
}

// results is the folder, in the working directory, for the results of a temporary testbed.
const results = "up"

// keep writes the newest model and the history to a permanent folder and prints their paths.
func (b *bed) keep() error {
	to := b.Folder.Dir
	if b.temporary {
		to = results
	}
	var history []byte
	state := ""
	for _, dir := range b.stateDirs() {
		if h, err := os.ReadFile(filepath.Join(dir, "history.jsonl")); err == nil && len(h) > len(history) {
			state, history = dir, h
		}
	}
	if len(history) == 0 {
		_, err := fmt.Fprintln(b.Stdout, "stopped before the first round: there is no model")
		return err
	}
	model := filepath.Join(to, "model.safetensors")
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	if _, err := b.ours("coordinator", "model", "export", "--state-dir", state, "--out", model); err != nil {
		return err
	}
	rounds := filepath.Join(to, "history.jsonl")
	if err := os.WriteFile(rounds, history, 0o644); err != nil { //nolint:gosec // for everyone, as the model is
		return err
	}
	_, err := fmt.Fprintf(b.Stdout, "the newest model is %s, and the rounds are in %s\n", model, rounds)
	return err
}
