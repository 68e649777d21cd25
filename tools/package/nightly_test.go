//go:build nightly

package main

import (
	"path/filepath"
	"testing"
)

// TestDistFromNothing makes everything that is released twice, the second time
// with an empty build cache and in another folder, and wants the same bytes.
func TestDistFromNothing(t *testing.T) {
	out, again := filepath.Join(t.TempDir(), "dist"), filepath.Join(t.TempDir(), "dist")
	if err := run(clone(t), out, "", "", ""); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOCACHE", t.TempDir())
	if err := run(clone(t), again, "", "", ""); err != nil {
		t.Fatal(err)
	}
	sameFiles(t, out, again)
	shell(t, out, "sha256sum --strict --check SHA256SUMS")
}
