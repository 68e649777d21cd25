package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

// options are what the command line says.
type options struct {
	dir, bin, pictures string
	agents             int
	tls                bool
	limit              time.Duration
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "testbed:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	var o options
	flags := flag.NewFlagSet("testbed up|check|files", flag.ExitOnError)
	flags.StringVar(&o.dir, "dir", "", "folder for everything, made anew (default: one that is removed afterwards)")
	flags.StringVar(&o.bin, "bin", "bin", "where agentd and coordinator are")
	flags.IntVar(&o.agents, "agents", 30, "number of agents, at least 6")
	flags.BoolVar(&o.tls, "tls", false, "a certificate for everyone, instead of passwords")
	flags.StringVar(&o.pictures, "pictures", "", "check: write a picture of each dashboard into this folder, if Chromium is here")
	flags.DurationVar(&o.limit, "limit", 5*time.Minute, "check: how long it may take until all is well")
	if len(args) == 0 || !slices.Contains([]string{"up", "check", "files"}, args[0]) {
		flags.Usage()
		return errors.New("say up, check or files")
	}
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if o.agents < 6 || flags.NArg() > 0 {
		return fmt.Errorf("--agents must be at least 6, and nothing else may be said: %q", flags.Args())
	}
	if args[0] == "files" {
		if o.dir == "" {
			return errors.New("files needs a --dir")
		}
		_, err := layOut(&o)
		return err
	}
	return work(&o, args[0] == "check")
}

// work runs the testbed until it is told to stop, or the check is over.
func work(o *options, check bool) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b, err := layOut(o)
	if err != nil {
		return err
	}
	defer b.remove()
	defer b.stop()
	if err := b.start(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	if check {
		return b.check(ctx)
	}
	b.tell(os.Stdout)
	select {
	case <-ctx.Done():
		fmt.Println("\nstopping")
		return nil
	case name := <-b.ended:
		return fmt.Errorf("%s ended: its log is %s", name, b.path(name+".log"))
	}
}
