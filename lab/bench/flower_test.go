package bench

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/spec"
)

func TestFlowerOptions(t *testing.T) {
	good := FlowerOptions{Cells: []string{"4x1000", "50x10"}, Runs: Runs{Reps: 1}}
	all, err := good.matches()
	if err != nil || len(all) != 2 || all[1].agents != 50 || all[1].dim != 10 {
		t.Fatalf("cells %v, error %v", all, err)
	}
	for _, cell := range []string{"", "4", "4x", "x1000", "0x1000", "4x65537", "4x0", "4x1000x2"} {
		bad := FlowerOptions{Cells: []string{cell}, Runs: Runs{Reps: 1}}
		if _, err := bad.matches(); err == nil || !strings.Contains(err.Error(), "want AGENTSxELEMENTS") {
			t.Errorf("cell %q: error %v", cell, err)
		}
	}
	for _, bad := range []FlowerOptions{{}, {Runs: Runs{Reps: 1, Rounds: window - 1}}} {
		if _, err := bad.matches(); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

// TestTypicalRound checks that times in whole milliseconds resolve rounds of 5.4 ms, and that a pause in one round has
// no effect.
func TestTypicalRound(t *testing.T) {
	begin := time.UnixMilli(1_700_000_000_000)
	var times []time.Time
	for k := range 61 {
		at := begin.Add(time.Duration(k) * 5400 * time.Microsecond)
		if k > 50 {
			at = at.Add(time.Second)
		}
		times = append(times, at.Truncate(time.Millisecond))
	}
	if got := typical(times); got != 5400*time.Microsecond {
		t.Errorf("a round of %v, want 5.4ms", got)
	}
}

// TestNetworkHasItsNumbers checks that both contestants train the same number of parameters, in layers that the
// settings allow.
func TestNetworkHasItsNumbers(t *testing.T) {
	for _, cell := range FlowerDefaults().Cells {
		_, text, _ := strings.Cut(cell, "x")
		d, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		f := &fleet{agents: 4, drawn: 4, dim: d}
		s := f.leader()
		var problems spec.ProblemList
		s.Task.Model.Check(&problems, "model")
		if n := s.Task.Model.HiddenUnits[0] * (len(s.Task.Features) + 1); n != d || problems.Err() != nil {
			t.Errorf("d = %d: %d numbers, %v", d, n, problems.Err())
		}
	}
}

// TestFlowerPage checks that new tables replace the tables of an earlier run, and that the other text is unchanged.
func TestFlowerPage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(path, []byte("head\n<begin>\nold\n<end>\ntail\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := replaceBetween(path, "<begin>\n", "<end>", "new\n"); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(path); string(got) != "head\n<begin>\nnew\n<end>\ntail\n" {
		t.Errorf("%q", got)
	}
	if replaceBetween(path, "<none>\n", "<end>", "") == nil || replaceBetween(path, "<begin>\n", "<none>", "") == nil {
		t.Error("a page without marks is accepted")
	}
}

// TestFlowerTables checks the medians of two contestants' runs, and their ratio.
func TestFlowerTables(t *testing.T) {
	runs := func(ms ...time.Duration) (all []race) {
		for _, x := range ms {
			all = append(all, race{took: x * time.Millisecond, leader: x * time.Millisecond / 2, agentByte: 9e6})
		}
		return all
	}
	m := &match{agents: 4, dim: 1000, runs: map[string][]race{agentsOnDisk: runs(30, 10, 20),
		agentsInMemory: runs(16, 14, 15), flower: runs(99, 40, 1)}}
	text := flowerTables([]*match{m}, 3)
	for _, want := range []string{"| 4 | 1000 | 20 | 15 | 40 | 0.50 | 0.38 |", "| 4 | 1000 | 10 | ",
		"medians of 3 alternating runs"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// TestCrew measures a fake server that reports rounds as Flower's does. It checks that an error contains the last
// output of a process.
func TestCrew(t *testing.T) {
	c := newCrew(t.Context(), 1)
	defer c.Stop()
	pid, err := c.start(c.printed, "sh", "-c", "for k in $(seq 100); do echo round $k; done; exec sleep 60")
	if err != nil {
		t.Fatal(err)
	}
	c.leader, c.agents = pid, []int{pid}
	if r, err := c.measure(10); err != nil || r.took != time.Second {
		t.Errorf("a round of %v, error %v; want 1s", r.took, err)
	}
	d := newCrew(t.Context(), 1)
	defer d.Stop()
	if _, err := d.start(nil, "sh", "-c", "echo no such broker; exit 3"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.measure(1); err == nil || !strings.Contains(err.Error(), "no such broker") {
		t.Errorf("error %v", err)
	}
}
