package main

import (
	"strings"
	"testing"
)

// The whole benchmark, as small as it can be.
func TestEveryContestantFinishes(t *testing.T) {
	var out strings.Builder
	err := run(t.Context(), []string{
		"-brokers", "embedded", "-agents", "2", "-dims", "10,20000", "-reps", "1", "-dir", t.TempDir(), "-tmpfs", t.TempDir(),
	}, &out)
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
	if lines != 4 { // two cells in two tables
		t.Errorf("%d lines, want 4:\n%s", lines, &out)
	}
}

func TestBadOptions(t *testing.T) {
	for flag, want := range map[string]string{
		"-brokers=none": `unknown broker "none": use mosquitto or embedded`,
		"-agents=x":     `-agents: "x" is not a number from 1 to 5000`,
		"-agents=0":     `-agents: "0" is not a number`,
		"-dims=1e3":     `-dims: "1e3" is not a number`,
		"-reps=0":       `-reps is 0: must be at least 1`,
		"-only=us":      `-only: no contestant is called "us"`,
	} {
		if err := run(t.Context(), []string{flag}, new(strings.Builder)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", flag, err, want)
		}
	}
}
