package testbed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Options of a testbed.
type Options struct {
	Dir    string        // of all files, must be new; empty = a temporary one
	Bin    string        // folder with the programs agentd and coordinator
	Agents int           // at least 6
	TLS    bool          // give every client a certificate instead of a password
	Limit  time.Duration // of Check
	Stdout io.Writer
}

// Defaults returns the default options.
func Defaults() Options { return Options{Bin: "bin", Agents: 30, Limit: 5 * time.Minute} }

// Validate returns an error if an option is out of range.
func (o *Options) Validate() error {
	if o.Agents < 6 {
		return fmt.Errorf("--agents must be at least 6, is %d", o.Agents)
	}
	return nil
}

// Files only makes the folder, with keys, certificates and configurations.
func Files(o Options) error {
	if o.Dir == "" {
		return errors.New("--dir is missing: give a new folder for the files")
	}
	_, err := layOut(o)
	return err
}

// Up runs the testbed until the context ends.
func Up(ctx context.Context, o Options) error { return work(ctx, o, (*bed).hold) }

// Check runs the testbed until each target is up, rounds advance, and each query of a dashboard or rule has data. The
// error says what is wrong when Limit is over.
func Check(ctx context.Context, o Options) error { return work(ctx, o, (*bed).check) }

// work starts a testbed, does one thing with it, and stops it.
func work(ctx context.Context, o Options, do func(*bed, context.Context) error) error {
	b, err := layOut(o)
	if err != nil {
		return err
	}
	defer b.remove()
	defer b.stop()
	go b.grow()
	if err := b.start(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	return do(b, ctx)
}

// hold says what runs, and waits for the end of the context or of a process.
func (b *bed) hold(ctx context.Context) error {
	b.tell(b.Stdout)
	select {
	case <-ctx.Done():
		_, err := fmt.Fprintln(b.Stdout, "\nstopping")
		return err
	case name := <-b.ended:
		return fmt.Errorf("%s ended: its log is %s", name, b.path(name+".log"))
	}
}
