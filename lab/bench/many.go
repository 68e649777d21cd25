package bench

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// ManyOptions are the options of the benchmark with many agents.
type ManyOptions struct {
	Runs
	Cells []string // cases to measure: AGENTSxELEMENTS or AGENTSxELEMENTS/DRAWN
	Fleet bool     // true to run many agents without local steps per process; false to run one process per agent
}

// ManyDefaults returns the default options, which docs/BENCHMARKS.md uses.
func ManyDefaults() ManyOptions {
	return ManyOptions{Cells: []string{"1000x1000", "1000x100000/10"}, Runs: Runs{Reps: 1, Memory: "/dev/shm"}}
}

func (o *ManyOptions) matches() (all []*match, err error) {
	for _, text := range o.Cells {
		text, drawn, some := strings.Cut(text, "/")
		m := parseMatch(text)
		if m != nil && some {
			m.drawn, err = strconv.Atoi(drawn)
		}
		if m == nil || err != nil || m.drawn < 1 || m.drawn > m.agents {
			return nil, fmt.Errorf("--cells: want AGENTSxELEMENTS or AGENTSxELEMENTS/DRAWN, such as "+
				"1000x100000/10; got %q",
				text)
		}
		m.fleet = o.Fleet
		all = append(all, m)
	}
	return all, o.check()
}

// RunMany measures federations of a coordinator, Mosquitto and many agents, one after the other, and prints the table.
func RunMany(ctx context.Context, o ManyOptions, out io.Writer) error {
	all, err := o.matches()
	if err != nil {
		return err
	}
	if err := o.find(); err != nil {
		return err
	}
	for rep := range o.Reps {
		for _, m := range all {
			r, err := o.runOurs(ctx, m, o.Memory)
			if err != nil {
				return fmt.Errorf("%d agents, d = %d: %w", m.agents, m.dim, err)
			}
			m.runs[agentsInMemory] = append(m.runs[agentsInMemory], r)
			fmt.Fprintf(out, "%d agents, %d drawn, d = %d, run %d: %s ms per round\n", m.agents, m.drawn, m.dim, rep+1,
				milliseconds(r.took))
		}
	}
	fmt.Fprintf(out, "\n%s", manyTable(all, o.Reps))
	return nil
}

// manyTable returns a Markdown table with one line per federation. Times are medians over all runs, and memory is from
// the last run.
func manyTable(all []*match, reps int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s; Go %s; medians of %d runs.\n\n", machine(),
		strings.TrimPrefix(runtime.Version(), "go"), reps)
	b.WriteString("| agents | drawn | d | all connected, s | round, ms | ÷ first line | coordinator, CPU ms | " +
		"all agents | broker | coordinator, MB | peak RSS | agent | broker | all |\n" +
		strings.Repeat("|---", 14) + "|\n")
	for _, m := range all {
		of := func(what func(race) time.Duration) time.Duration { return m.median(agentsInMemory, what) }
		took := func(r race) time.Duration { return r.took }
		last := m.runs[agentsInMemory][reps-1]
		n := time.Duration(m.agents)
		fmt.Fprintf(&b, "| %d | %d | %d | %.1f | %s | %s | %s | %s | %s", m.agents, m.drawn, m.dim,
			of(func(r race) time.Duration { return r.ready }).Seconds(), milliseconds(of(took)),
			ratio(of(took), all[0].median(agentsInMemory, took)),
			milliseconds(of(func(r race) time.Duration { return r.leader })),
			milliseconds(of(func(r race) time.Duration { return r.agent * n })),
			milliseconds(of(func(r race) time.Duration { return r.broker })))
		for _, bytes := range []int{last.leaderBytes, last.leaderMost, last.agentByte, last.brokerBytes,
			last.leaderBytes + m.agents*last.agentByte + last.brokerBytes} {
			fmt.Fprintf(&b, " | %.1f", float64(bytes)/1e6)
		}
		b.WriteString(" |\n")
	}
	return b.String()
}
