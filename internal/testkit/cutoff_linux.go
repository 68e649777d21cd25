package testkit

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TruncateOpenFile cuts off the one file in a folder that this process has open, which may have no name: a disk that
// loses what was written.
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
