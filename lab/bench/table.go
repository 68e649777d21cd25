package bench

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Names of the contestants in the tables.
const (
	ours      = "fedmesh"
	oursQuick = "no fsync"
	paho0     = "paho QoS 0"
	paho1     = "paho QoS 1"
	relayed   = "relay"
	// signing names the measurement of signatures alone. signing appears only in the table of CPU times.
	signing = "signatures"
)

var columns = []string{ours, oursQuick, paho0, paho1, relayed}

// contestant has a name and a function that runs one round.
type contestant struct {
	name  string
	round func(context.Context) (sample, error)
}

// sample holds the elapsed time and the CPU time of one round. CPU time depends less on other programs on the machine.
type sample struct{ took, cpu time.Duration }

// cell is one line of the table: a broker, a number of agents, a model size and the measured samples.
type cell struct {
	broker      string
	agents, dim int
	took        map[string][]sample
	notes       []string
}

func printHead(w io.Writer) {
	var head []string
	for _, r := range ratios {
		head = append(head, r.title)
	}
	printTitles(w, slices.Concat(columns, head)...)
}

func printTitles(w io.Writer, titles ...string) {
	fmt.Fprintf(w, "| broker | d | agents | %s |\n|%s\n", strings.Join(titles, " | "),
		strings.Repeat("---|", 3+len(titles)))
}

// ratios lists the columns that compare the elapsed time of two contestants.
var ratios = []struct{ title, of, by string }{
	{"fedmesh ÷ " + paho1, ours, paho1},
	{"no fsync ÷ " + paho1, oursQuick, paho1},
	{"÷ " + paho0, oursQuick, paho0},
	{"÷ " + relayed, oursQuick, relayed},
}

// note adds a note about unusual results, such as lost messages, to the cell.
func (c *cell) note(format string, args ...any) {
	c.notes = append(c.notes, fmt.Sprintf("%s, d = %d, %d agents: ", c.broker, c.dim, c.agents)+fmt.Sprintf(format,
		args...))
}

// print writes a table line with the shortest time of each contestant in milliseconds and the ratios.
func (c *cell) print(w io.Writer) {
	var line []string
	for _, name := range columns {
		text := "–"
		if len(c.took[name]) > 0 {
			text = milliseconds(c.best(name, sample.time).took)
		}
		line = append(line, text)
	}
	for _, r := range ratios {
		line = append(line, ratio(c.best(r.of, sample.time).took, c.best(r.by, sample.time).took))
	}
	c.printLine(w, line)
}

// printCPU writes the table of CPU times in milliseconds, with and without the CPU time of signatures.
func printCPU(w io.Writer, cells []*cell) {
	fmt.Fprintln(w)
	printTitles(w, ours, "signatures", paho0, paho1, relayed, "fedmesh ÷ "+paho1, "÷ "+paho0,
		"without signatures ÷ "+paho1, "÷ "+paho0)
	for _, c := range cells {
		cpu := func(name string) time.Duration { return c.best(name, sample.cpuTime).cpu }
		all, signed, p0, p1 := cpu(ours), cpu(signing), cpu(paho0), cpu(paho1)
		var line []string
		for _, d := range []time.Duration{all, signed, p0, p1, cpu(relayed)} {
			line = append(line, milliseconds(d))
		}
		c.printLine(w, append(line, ratio(all, p1), ratio(all, p0), ratio(all-signed, p1), ratio(all-signed, p0)))
	}
}

func (c *cell) printLine(w io.Writer, columns []string) {
	fmt.Fprintf(w, "| %s | %d | %d | %s |\n", c.broker, c.dim, c.agents, strings.Join(columns, " | "))
}

func (s sample) cpuTime() time.Duration { return s.cpu }
func (s sample) time() time.Duration    { return s.took }

// best returns the sample with the least value of `of`, or a zero sample if the contestant has none.
func (c *cell) best(name string, of func(sample) time.Duration) sample {
	if len(c.took[name]) == 0 {
		return sample{}
	}
	return slices.MinFunc(c.took[name], func(a, b sample) int { return cmp.Compare(of(a), of(b)) })
}

func ratio(a, b time.Duration) string {
	if a <= 0 || b <= 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", float64(a)/float64(b))
}

func milliseconds(d time.Duration) string {
	if d <= 0 {
		return "–"
	}
	if d < 10*time.Millisecond {
		return fmt.Sprintf("%.1f", d.Seconds()*1e3)
	}
	return fmt.Sprintf("%.0f", d.Seconds()*1e3)
}
