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

// TestRestandardizeNeedsTheOwner checks that a request by another user is refused, since the service's user could not
// read it. No file is left, and the error names the command.
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
