package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
)

// Options are what is measured, and how often.
type Options struct {
	Brokers []string // of mosquitto and embedded
	Agents  []int    // each from 1 to 5,000
	Dims    []int    // lengths of the model, in float32 elements, even, each from 2 to 10,000,000
	Only    []string // contestants, by their names in the table; empty = all
	Reps    int      // repetitions; the best one counts
	Dir     string   // of the coordinator's state, on the disk whose fsync is to be measured
	Memory  string   // of the agents' state, and of the coordinator's without fsync: a folder in memory
	Profile string   // a file for a CPU profile of the rounds; empty = none
}

// Defaults returns the options of docs/BENCHMARKS.md.
func Defaults() Options {
	return Options{
		Brokers: []string{"mosquitto", "embedded"}, Agents: []int{10, 100, 1000}, Dims: []int{1000, 100_000}, Reps: 7,
		Dir: os.TempDir(), Memory: "/dev/shm",
	}
}

// Validate reports what cannot be measured.
func (o *Options) Validate() error {
	if o.Reps < 1 {
		return fmt.Errorf("--reps must be at least 1, is %d", o.Reps)
	}
	for _, name := range o.Brokers {
		if starters[name] == nil {
			return fmt.Errorf("--brokers must be of mosquitto and embedded, has %q", name)
		}
	}
	for _, name := range o.Only {
		if !slices.Contains(columns, name) {
			return fmt.Errorf("--only: no contestant is called %q: they are %s", name, strings.Join(columns, ", "))
		}
	}
	return errors.Join(within("agents", o.Agents, 1, 5000), within("dims", o.Dims, 2, 10_000_000))
}

// within wants all numbers of a flag to be from least to most.
func within(flag string, all []int, least, most int) error {
	for _, n := range all {
		if n < least || n > most {
			return fmt.Errorf("--%s must be from %d to %d, has %d", flag, least, most, n)
		}
	}
	return nil
}

// Run measures every cell and prints its line when it is done, and then what
// needs them all.
func Run(ctx context.Context, o Options, out io.Writer) error {
	record := func() error { return nil } // starts the profile
	if o.Profile != "" {
		f, err := os.Create(o.Profile)
		if err != nil {
			return err
		}
		defer f.Close()
		record = sync.OnceValue(func() error { return pprof.StartCPUProfile(f) })
		defer pprof.StopCPUProfile()
	}
	// In this process are the stacks of all contestants' agents, which no device
	// has: the collector should run rarely, for all of them alike.
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
func measureAll(ctx context.Context, o Options, out io.Writer, record func() error) (cells []*cell, err error) {
	printHead(out)
	for _, kind := range o.Brokers {
		for _, d := range o.Dims {
			for _, n := range o.Agents {
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
func measure(ctx context.Context, o Options, kind string, n, d int, record func() error) (*cell, error) {
	c := &cell{broker: kind, agents: n, dim: d, took: map[string][]sample{}}
	s := &stage{ctx: ctx, options: o, cell: c, payload: vector(d)}
	defer s.close()
	contestants, err := s.connect()
	if err != nil {
		return nil, err
	}
	lost := map[string]int{}
	if o.Profile == "" { // which should show the contestants only
		contestants = append(contestants,
			contestant{signing, func(context.Context) (sample, error) { return sign(n, s.payload), nil }})
	}
	for rep := range o.Reps + 1 { // the first warms up and does not count
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
		c.note("%s lost messages in %d of %d repetitions, which do not count", name, times, o.Reps+1)
	}
	return c, nil
}
