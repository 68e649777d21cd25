package bench

import (
	"strings"
	"testing"
	"time"
)

func TestManyOptions(t *testing.T) {
	o := ManyDefaults()
	o.Fleet = true
	all, err := o.matches()
	if err != nil || len(all) != 2 || all[0].drawn != 1000 || all[1].drawn != 10 || !all[1].fleet {
		t.Fatalf("%+v, error %v", all, err)
	}
	for _, cell := range []string{"1000", "1000x1000/", "1000x1000/0", "1000x1000/1001", "1000x1000/2x"} {
		bad := ManyOptions{Cells: []string{cell}, Runs: Runs{Reps: 1}}
		if _, err := bad.matches(); err == nil || !strings.Contains(err.Error(), "AGENTSxELEMENTS/DRAWN") {
			t.Errorf("cell %q: error %v", cell, err)
		}
	}
	if _, err := (&ManyOptions{}).matches(); err == nil {
		t.Error("no run at all is accepted")
	}
}

// TestManyTable checks two things for each row of the table: the ratio to the first row, and the total resource usage
// of all processes.
func TestManyTable(t *testing.T) {
	one := race{ready: 26 * time.Second, took: 200 * time.Millisecond, leader: 80 * time.Millisecond,
		agent: 2 * time.Millisecond, broker: 30 * time.Millisecond, leaderBytes: 40e6, leaderMost: 50e6, agentByte: 6e6,
		brokerBytes: 12e6}
	two := one
	two.took = 300 * time.Millisecond
	text := manyTable([]*match{
		{agents: 10, drawn: 10, dim: 1000, runs: map[string][]race{agentsInMemory: {one}}},
		{agents: 100, drawn: 10, dim: 1000, runs: map[string][]race{agentsInMemory: {two}}},
	}, 1)
	for _, want := range []string{
		"| 10 | 10 | 1000 | 26.0 | 200 | 1.00 | 80 | 20 | 30 | 40.0 | 50.0 | 6.0 | 12.0 | 112.0 |",
		"| 100 | 10 | 1000 | 26.0 | 300 | 1.50 | 80 | 200 | 30 | 40.0 | 50.0 | 6.0 | 12.0 | 652.0 |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
