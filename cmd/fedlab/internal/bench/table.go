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

// The contestants.
const (
	ours      = "fedmesh"
	oursQuick = "no fsync"
	oursAlone = "transport alone"
	paho0     = "paho QoS 0"
	paho1     = "paho QoS 1"
	relayed   = "relay"
	// No contestant, and no column: what is signed, and what is hashed.
	cryptoAlone = "crypto"
)

var columns = []string{ours, oursQuick, oursAlone, paho0, paho1, relayed}

// contestant plays rounds.
type contestant struct {
	name  string
	round func(context.Context) (sample, error)
}

// sample is what a round took: each half, and the processor time of both,
// which is less at the mercy of what else the machine does.
type sample struct{ out, back, cpu time.Duration }

// cell is one line of the table.
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

// ratios are of whole rounds, in time.
var ratios = []struct{ title, of, by string }{
	{"fedmesh ÷ " + paho1, ours, paho1},
	{"alone ÷ " + paho1, oursAlone, paho1},
	{"÷ " + paho0, oursAlone, paho0},
	{"÷ " + relayed, oursAlone, relayed},
}

// note tells how a number came about that is not what its column says.
func (c *cell) note(format string, args ...any) {
	c.notes = append(c.notes, fmt.Sprintf("%s, d = %d, %d agents: ", c.broker, c.dim, c.agents)+fmt.Sprintf(format,
		args...))
}

// print writes the line of the times: out + back in ms, and the ratios of the
// sums.
func (c *cell) print(w io.Writer) {
	var line []string
	for _, name := range columns {
		text := "–"
		if len(c.took[name]) > 0 {
			best := c.best(name, sample.time)
			text = milliseconds(best.out) + " + " + milliseconds(best.back)
		}
		line = append(line, text)
	}
	for _, r := range ratios {
		line = append(line, ratio(c.best(r.of, sample.time).time(), c.best(r.by, sample.time).time()))
	}
	c.printLine(w, line)
}

// printCPU writes the table of the processor time, in ms. Signatures and hashes
// are measured apart; the transport alone has none of the first.
func printCPU(w io.Writer, cells []*cell) {
	fmt.Fprintln(w)
	printTitles(w, ours, "of it signatures", "of it SHA-256", oursAlone, paho0, paho1, relayed,
		"alone ÷ "+paho1, "÷ "+paho0, "alone less SHA-256 ÷ "+paho1, "÷ "+paho0)
	for _, c := range cells {
		cpu := func(name string) time.Duration { return c.best(name, sample.cpuTime).cpu }
		crypto, alone, p0, p1 := c.best(cryptoAlone, sample.cpuTime), cpu(oursAlone), cpu(paho0), cpu(paho1)
		var line []string
		for _, d := range []time.Duration{cpu(ours), crypto.out, crypto.back, alone, p0, p1, cpu(relayed)} {
			line = append(line, milliseconds(d))
		}
		rest := alone - crypto.back
		c.printLine(w, append(line, ratio(alone, p1), ratio(alone, p0), ratio(rest, p1), ratio(rest, p0)))
	}
}

func (c *cell) printLine(w io.Writer, columns []string) {
	fmt.Fprintf(w, "| %s | %d | %d | %s |\n", c.broker, c.dim, c.agents, strings.Join(columns, " | "))
}

func (s sample) cpuTime() time.Duration { return s.cpu }
func (s sample) time() time.Duration    { return s.out + s.back }

// best is the sample with the least of something, zero for a contestant
// without any.
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
