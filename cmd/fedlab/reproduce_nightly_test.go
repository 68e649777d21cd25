//go:build nightly

package main

import (
	"os"
	"testing"

	"github.com/fedmesh/fedmesh/internal/clitest"
	"github.com/fedmesh/fedmesh/lab/datasets"
)

// TestReproduceFashion runs the experiments on images (Fashion-MNIST) for two rounds.
func TestReproduceFashion(t *testing.T) {
	if _, err := os.Stat(datasets.FashionFolder); err != nil && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	code, stdout, stderr := clitest.Run(rootCommand(), "reproduce", "fashion", "fashion-rules", "--quick")
	if code != 0 {
		t.Errorf("exit status %d: %s\n%s", code, stderr, stdout)
	}
}

// TestReproduceFull runs all experiments in full, which takes five minutes on two cores.
func TestReproduceFull(t *testing.T) {
	if code, stdout, stderr := clitest.Run(rootCommand(), "reproduce", "--out", t.TempDir()); code != 0 {
		t.Errorf("exit status %d: %s\n%s", code, stderr, stdout)
	}
}
