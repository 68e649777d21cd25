//go:build !race

// The race detector makes these tests ten times slower; what they run at once has its own tests in sim/reproduce.

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/sim/reproduce"
)

// TestReproduceQuick runs the quick form of all experiments as a person does who has no other arguments: every claim holds, with a
// line each.
func TestReproduceQuick(t *testing.T) {
	dir := t.TempDir()
	code, stdout, stderr := try(t, "reproduce", "--quick", "--json", "--out", dir)
	if code != 0 {
		t.Errorf("exit status %d: %s", code, stderr)
	}
	var ids, want []string
	for line := range strings.Lines(stdout) {
		var o struct {
			ID      string
			Holds   bool
			Seconds float64
			Values  map[string]float64
		}
		if err := json.Unmarshal([]byte(line), &o); err != nil || !o.Holds || o.Seconds <= 0 || len(o.Values) == 0 {
			t.Errorf("%v in %s", err, line)
		}
		ids = append(ids, o.ID)
	}
	for _, e := range reproduce.All() {
		want = append(want, e.About().ID)
	}
	if !slices.Equal(ids, want) {
		t.Errorf("ran %q, want %q", ids, want)
	}
	page, err := os.ReadFile(filepath.Join(dir, "report.html"))
	if err != nil || bytes.Count(page, []byte("<svg")) < len(want) {
		t.Errorf("report.html has %d plots, %v", bytes.Count(page, []byte("<svg")), err)
	}
	if svg, err := os.ReadFile(filepath.Join(dir, "lab-3.svg")); err != nil || !bytes.Contains(svg, []byte("</svg>")) {
		t.Errorf("lab-3.svg: %v", err)
	}
}
