package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
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
	head := append([]string{"broker", "d", "agents"}, columns...)
	for _, r := range ratios {
		head = append(head, r.title)
	}
	head = append(head, "CPU of fedmesh", "of signatures", "of SHA-256", "of paho QoS 0", "rest ÷ paho QoS 0")
	fmt.Fprintf(w, "| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat("---|", len(head)))
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

// print writes the line: out + back in ms, the ratios of the sums, and the
// processor time in ms. The rest is what is left of ours without fsync when
// signatures and hashes are taken off.
func (c *cell) print(w io.Writer) {
	line := []string{c.broker, strconv.Itoa(c.dim), strconv.Itoa(c.agents)}
	for _, name := range columns {
		text := "–"
		if len(c.took[name]) > 0 {
			text = milliseconds(c.median(name, sample.outTime)) + " + " + milliseconds(c.median(name, sample.backTime))
		}
		line = append(line, text)
	}
	for _, r := range ratios {
		line = append(line, c.ratio(c.median(r.of, sample.time), c.median(r.by, sample.time)))
	}
	used, rival := c.median(oursQuick, sample.cpuTime), c.median(paho0, sample.cpuTime)
	signatures, hashes := c.median(cryptoAlone, sample.outTime), c.median(cryptoAlone, sample.backTime)
	for _, d := range []time.Duration{used, signatures, hashes, rival} {
		line = append(line, milliseconds(d))
	}
	line = append(line, c.ratio(used-signatures-hashes, rival))
	fmt.Fprintf(w, "| %s |\n", strings.Join(line, " | "))
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

func (*cell) ratio(a, b time.Duration) string {
	if a <= 0 || b <= 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", float64(a)/float64(b))
}

func milliseconds(d time.Duration) string {
	if d == 0 {
		return "–"
	}
	if d < 10*time.Millisecond {
		return fmt.Sprintf("%.1f", d.Seconds()*1e3)
	}
	return fmt.Sprintf("%.0f", d.Seconds()*1e3)
}
