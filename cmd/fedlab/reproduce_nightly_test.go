//go:build nightly

package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/cmd/fedlab/internal/datasets"
	"github.com/fedmesh/fedmesh/cmd/internal/clitest"
)

// TestReproduceFashion runs the experiments on images for two rounds.
func TestReproduceFashion(t *testing.T) {
	if _, err := os.Stat(datasets.FashionFolder); err != nil && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	code, stdout, stderr := clitest.Run(rootCommand(), "reproduce", "fashion", "fashion-rules", "--quick", "--json")
	if code != 0 {
		t.Fatalf("exit status %d: %s", code, stderr)
	}
	lines := json.NewDecoder(strings.NewReader(stdout))
	for _, keys := range [][]string{{"iid", "dirichlet", "shards"}, {"mean", "krum", "median", "fedadam_0.01"}} {
		var o struct{ Values map[string]float64 }
		if err := lines.Decode(&o); err != nil {
			t.Fatal(err)
		}
		for _, key := range keys {
			if v := o.Values[key]; v < 0.15 { // chance is 0.1
				t.Errorf("%s: accuracy %v after two rounds", key, v)
			}
		}
	}
}

// TestReproduceFull runs all experiments as they are, five minutes on two cores.
func TestReproduceFull(t *testing.T) {
	if code, stdout, stderr := clitest.Run(rootCommand(), "reproduce", "--out", t.TempDir()); code != 0 {
		t.Errorf("exit status %d: %s\n%s", code, stderr, stdout)
	}
}
