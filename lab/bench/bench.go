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

// Options are the options of the benchmark.
type Options struct {
	Brokers []string // names of the brokers to test: mosquitto, embedded
	Agents  []int    // numbers of agents to test, each from 1 to 5,000
	Dims    []int    // numbers of model parameters (float32) to test; even, from 2 to 10,000,000
	Only    []string // names of the contestants to run; empty means all
	Reps    int      // number of repetitions; the table shows the fastest repetition
	Dir     string   // folder for the coordinator's state; the benchmark measures the fsync of its disk
	Memory  string   // in-memory folder for the agents' state and for the coordinator's state without fsync
	Profile string   // output file for a CPU profile of the rounds; "" disables profiling
}

// Defaults returns the options of docs/BENCHMARKS.md.
func Defaults() Options {
	return Options{
		Brokers: []string{"mosquitto", "embedded"}, Agents: []int{10, 100, 1000}, Dims: []int{1000, 100_000}, Reps: 7,
		Dir: os.TempDir(), Memory: "/dev/shm",
	}
}

// Validate reports invalid options.
func (o *Options) Validate() error {
	if o.Reps < 1 {
		return fmt.Errorf("--reps must be at least 1, but is %d", o.Reps)
	}
	for _, name := range o.Brokers {
		if starters[name] == nil {
			return fmt.Errorf("--brokers: unknown broker %q, want mosquitto or embedded", name)
		}
	}
	for _, name := range o.Only {
		if !slices.Contains(columns, name) {
			return fmt.Errorf("--only: unknown contestant %q, want one of %s", name, strings.Join(columns, ", "))
		}
	}
	return errors.Join(within("agents", o.Agents, 1, 5000), within("dims", o.Dims, 2, 10_000_000))
}

// within checks that all numbers of a flag are between least and most.
func within(flag string, all []int, least, most int) error {
	for _, n := range all {
		if n < least || n > most {
			return fmt.Errorf("--%s must be from %d to %d, but contains %d", flag, least, most, n)
		}
	}
	return nil
}

// Run measures every combination of broker, model size and number of agents, and prints one table line for each. At the
// end it prints the table of CPU times and the notes.
func Run(ctx context.Context, o Options, out io.Writer) error {
	record := func() error { return nil } // starts the CPU profile; does nothing without o.Profile
	if o.Profile != "" {
		f, err := os.Create(o.Profile)
		if err != nil {
			return err
		}
		defer f.Close()
		record = sync.OnceValue(func() error { return pprof.StartCPUProfile(f) })
		defer pprof.StopCPUProfile()
	}
	// Make garbage collection rare, because this process runs the agents of all contestants together. On a real system
	// each agent has its own process.
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

// measureAll measures all cells of the table. If a measurement fails, measureAll returns the cells that it has measured
// before.
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

// measure starts a new broker and measures all contestants of one table cell. It calls record, which starts the CPU
// profile, after the warm-up repetition.
func measure(ctx context.Context, o Options, kind string, n, d int, record func() error) (*cell, error) {
	c := &cell{broker: kind, agents: n, dim: d, took: map[string][]sample{}}
	s := &stage{ctx: ctx, options: o, cell: c, payload: vector(d)}
	defer s.close()
	contestants, err := s.connect()
	if err != nil {
		return nil, err
	}
	lost := map[string]int{}
	if o.Profile == "" {
		contestants = append(contestants,
			contestant{signing, func(context.Context) (sample, error) { return sign(n, s.payload), nil }})
	}
	for rep := range o.Reps + 1 { // The first repetition is a warm-up and is not recorded.
		if rep == 1 {
			if err := record(); err != nil {
				return nil, err
			}
		}
		for _, x := range contestants {
			took, err := x.round(ctx)
			switch {
			case errors.Is(err, errLost) && (x.name == paho0 || x.name == paho1):
				lost[x.name]++
			case err != nil:
				return nil, fmt.Errorf("%s: %w", x.name, err)
			case rep > 0:
				c.took[x.name] = append(c.took[x.name], took)
			}
		}
	}
	for name, times := range lost {
		c.note("%s lost messages in %d of %d repetitions, which are excluded", name, times, o.Reps+1)
	}
	return c, nil
}
