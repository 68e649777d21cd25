package main

import (
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
	oursBare  = "unsigned and no fsync"
	paho0     = "paho QoS 0"
	paho1     = "paho QoS 1"
	relayed   = "relay"
	// No contestant, and no column: what is signed, and what is hashed.
	cryptoAlone = "crypto"
)

var columns = []string{ours, oursQuick, oursBare, paho0, paho1, relayed}

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
	fmt.Fprintf(w, "| broker | d | agents | %s |\n|%s\n", strings.Join(titles, " | "), strings.Repeat("---|", 3+len(titles)))
}

// ratios are of whole rounds, in time.
var ratios = []struct{ title, of, by string }{
	{"fedmesh ÷ paho QoS 0", ours, paho0},
	{"÷ paho QoS 1", ours, paho1},
	{"÷ relay", ours, relayed},
	{"unsigned ÷ paho QoS 0", oursBare, paho0},
}

// note tells how a number came about that is not what its column says.
func (c *cell) note(format string, args ...any) {
	c.notes = append(c.notes, fmt.Sprintf("%s, d = %d, %d agents: ", c.broker, c.dim, c.agents)+fmt.Sprintf(format, args...))
}

// print writes the line of the times: out + back in ms, and the ratios of the
// sums.
func (c *cell) print(w io.Writer) {
	var line []string
	for _, name := range columns {
		text := "–"
		if len(c.took[name]) > 0 {
			text = milliseconds(c.median(name, sample.outTime)) + " + " + milliseconds(c.median(name, sample.backTime))
		}
		line = append(line, text)
	}
	for _, r := range ratios {
		line = append(line, ratio(c.median(r.of, sample.time), c.median(r.by, sample.time)))
	}
	c.printLine(w, line)
}

// printCPU writes the table of the processor time, in ms. The rest is what is
// left of ours when signatures and hashes are taken off.
func printCPU(w io.Writer, cells []*cell) {
	fmt.Fprintln(w)
	printTitles(w, oursQuick, "of it signatures", "of it SHA-256", "rest", paho0, paho1, "rest ÷ "+paho0, "÷ "+paho1)
	for _, c := range cells {
		used, signatures, hashes := c.median(oursQuick, sample.cpuTime), c.median(cryptoAlone, sample.outTime), c.median(cryptoAlone, sample.backTime)
		rest, least, most := used-signatures-hashes, c.median(paho0, sample.cpuTime), c.median(paho1, sample.cpuTime)
		var line []string
		for _, d := range []time.Duration{used, signatures, hashes, rest, least, most} {
			line = append(line, milliseconds(d))
		}
		c.printLine(w, append(line, ratio(rest, least), ratio(rest, most)))
	}
}

func (c *cell) printLine(w io.Writer, columns []string) {
	fmt.Fprintf(w, "| %s | %d | %d | %s |\n", c.broker, c.dim, c.agents, strings.Join(columns, " | "))
}

func (s sample) outTime() time.Duration  { return s.out }
func (s sample) backTime() time.Duration { return s.back }
func (s sample) cpuTime() time.Duration  { return s.cpu }
func (s sample) time() time.Duration     { return s.out + s.back }

// median is 0 for a contestant without a number.
func (c *cell) median(name string, of func(sample) time.Duration) time.Duration {
	var all []time.Duration
	for _, s := range c.took[name] {
		all = append(all, of(s))
	}
	if all == nil {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
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
