package bench

import (
	"errors"
	"strings"
	"testing"
)

// TestEveryContestantFinishes runs the whole benchmark at its smallest size.
func TestEveryContestantFinishes(t *testing.T) {
	if testing.Short() {
		t.Skip("eight federations")
	}
	var out strings.Builder
	o := Options{Brokers: []string{"embedded"}, Agents: []int{2}, Dims: []int{10, 20000}, Reps: 1, Dir: t.TempDir(),
		Memory: t.TempDir()}
	err := errors.Join(o.Validate(), Run(t.Context(), o, &out))
	if err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	lines := 0
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "| embedded ") {
			lines++
			if strings.Contains(line, "| – ") {
				t.Errorf("a contestant has no figure: %s", line)
			}
		}
	}
	if lines != 4 { // two rows in each of the two tables
		t.Errorf("%d lines, want 4:\n%s", lines, &out)
	}
}

func TestBadOptions(t *testing.T) {
	for want, change := range map[string]func(*Options){
		`--brokers: unknown broker "none", want mosquitto or embedded`:   func(o *Options) { o.Brokers[0] = "none" },
		`--agents must be from 1 to 5000, but contains 0`:                func(o *Options) { o.Agents[1] = 0 },
		`--dims must be from 2 to 10000000, but contains -1`:             func(o *Options) { o.Dims[0] = -1 },
		`--reps must be at least 1, but is 0`:                            func(o *Options) { o.Reps = 0 },
		`--only: unknown contestant "us", want one of fedmesh, no fsync`: func(o *Options) { o.Only = []string{"us"} },
	} {
		o := Defaults()
		if err := o.Validate(); err != nil {
			t.Fatal(err)
		}
		change(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
