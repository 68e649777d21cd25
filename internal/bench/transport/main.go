package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// options are the command line's.
type options struct {
	brokers, only []string
	agents, dims  []int
	reps          int
	dir, quick    string
	profile       string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench-transport:", err)
		stop()
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	flags := flag.NewFlagSet("bench-transport", flag.ContinueOnError)
	brokers := flags.String("brokers", "mosquitto,embedded", "which brokers")
	agents := flags.String("agents", "10,100,1000", "how many agents")
	dims := flags.String("dims", "1000,100000", "lengths of the model, in float32 elements")
	only := flags.String("only", "", "only these contestants, by their names in the table")
	o := options{}
	flags.IntVar(&o.reps, "reps", 7, "repetitions, of which the best counts")
	flags.StringVar(&o.dir, "dir", os.TempDir(), "where the spool is, on the disk whose fsync is to be measured")
	flags.StringVar(&o.quick, "tmpfs", "/dev/shm", "where the spool is without fsync: a folder in memory")
	flags.StringVar(&o.profile, "cpuprofile", "", "write a CPU profile of the rounds to this file")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.brokers = strings.Split(*brokers, ",")
	if *only != "" {
		o.only = strings.Split(*only, ",")
	}
	var err1, err2 error
	o.agents, err1 = numbers("agents", *agents, 1, 5000)
	o.dims, err2 = numbers("dims", *dims, 1, 10_000_000)
	if o.reps < 1 {
		return o, fmt.Errorf("-reps is %d: must be at least 1", o.reps)
	}
	for _, name := range o.only {
		if !slices.Contains(columns, name) {
			return o, fmt.Errorf("-only: no contestant is called %q: they are %s", name, strings.Join(columns, ", "))
		}
	}
	return o, errors.Join(err1, err2)
}

func numbers(name, list string, least, most int) ([]int, error) {
	var all []int
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < least || n > most {
			return nil, fmt.Errorf("-%s: %q is not a number from %d to %d", name, text, least, most)
		}
		all = append(all, n)
	}
	return all, nil
}

// run measures every cell and prints its line when it is done, and then what
// needs them all.
func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	record := func() error { return nil } // starts the profile
	if o.profile != "" {
		f, err := os.Create(o.profile)
		if err != nil {
			return err
		}
		defer f.Close()
		record = sync.OnceValue(func() error { return pprof.StartCPUProfile(f) })
		defer pprof.StopCPUProfile()
	}
	// In this process are the stacks of all contestants' agents, which no device
	// has: the collector shall run rarely, for all of them alike.
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(8 << 30)
	cells, err := measureAll(ctx, o, out, record)
	printCPU(out, cells)
	fmt.Fprintln(out)
	for _, c := range cells {
		for _, note := range c.notes {
			fmt.Fprintf(out, "- %s\n", note)
		}
	}
	return err
}

// measureAll returns the cells that it got, also with an error.
func measureAll(ctx context.Context, o options, out io.Writer, record func() error) (cells []*cell, err error) {
	printHead(out)
	for _, kind := range o.brokers {
		for _, d := range o.dims {
			for _, n := range o.agents {
				c, err := measure(ctx, o, kind, n, d, record)
				if err != nil {
					return cells, fmt.Errorf("%s, %d agents, d = %d: %w", kind, n, d, err)
				}
				c.print(out)
				cells = append(cells, c)
			}
		}
	}
	return cells, nil
}

// measure gets a cell: a broker of its own, and all contestants on it. The
// profile begins when all are connected and warm.
func measure(ctx context.Context, o options, kind string, n, d int, record func() error) (*cell, error) {
	c := &cell{broker: kind, agents: n, dim: d, took: map[string][]sample{}}
	s := &stage{ctx: ctx, options: o, cell: c, payload: vector(d)}
	defer s.close()
	contestants, err := s.connect()
	if err != nil {
		return nil, err
	}
	lost := map[string]int{}
	crypto := func(context.Context) (sample, error) {
		signatures, hashes := alone(n, s.payload)
		return sample{out: signatures, back: hashes, cpu: signatures + hashes}, nil
	}
	if o.profile == "" { // which shall show the contestants only
		contestants = append(contestants, contestant{cryptoAlone, crypto})
	}
	for rep := range o.reps + 1 { // the first warms up and does not count
		if rep == 1 {
			if err := record(); err != nil {
				return nil, err
			}
		}
		for _, x := range contestants {
			took, err := x.round(ctx)
			switch {
			case errors.Is(err, errLost) && (x.name == paho0 || x.name == paho1): // ours may lose nothing
				lost[x.name]++
			case err != nil:
				return nil, fmt.Errorf("%s: %w", x.name, err)
			case rep > 0:
				c.took[x.name] = append(c.took[x.name], took)
			}
		}
	}
	for name, times := range lost {
		c.note("%s lost messages in %d of %d repetitions, which do not count", name, times, o.reps+1)
	}
	return c, nil
}
