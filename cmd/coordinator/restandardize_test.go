package main

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/clitest"
)

// TestRestandardizeNeedsTheOwner checks that a request for a new standardisation is refused if another user than the
// service's user makes it, because the service could not read the request file. No file may be left behind, and the
// error must name the correct command.
func TestRestandardizeNeedsTheOwner(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("folders have no owner that counts")
	}
	dir := "/" // owned by root; the test may run as another user
	if os.Geteuid() == 0 {
		dir = folder(t)
		const nobody = 65534
		if err := os.Chown(dir, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	if code, _, stderr := clitest.Run(rootCommand(), "restandardize", "--state-dir", dir); code != 1 ||
		!strings.Contains(stderr, "run this command as that user, for example with sudo -u ") {
		t.Errorf("exit status %d, %s", code, stderr)
	}
	if _, err := os.Stat(filepath.Join(dir, "restandardize")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the request is there: %v", err)
	}
}
