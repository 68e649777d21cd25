package testkit

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TruncateOpenFile truncates the only open file of this process in the given folder, even if the file was already
// unlinked. TruncateOpenFile simulates a disk that loses data.
func TruncateOpenFile(t testing.TB, folder string) {
	t.Helper()
	all, err := filepath.Glob("/proc/self/fd/*")
	n := 0
	for _, fd := range all {
		if name, _ := os.Readlink(fd); strings.HasPrefix(name, folder+"/") {
			n++
			err = errors.Join(err, os.Truncate(fd, 0))
		}
	}
	if err != nil || n != 1 {
		t.Fatalf("%d files are open in %s: %v", n, folder, err)
	}
}
