package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/clitest"
)

// TestRestoreNothing checks that restoring without a run returns an error and creates no new run.
func TestRestoreNothing(t *testing.T) {
	dir := t.TempDir()
	file := write(t, "coordinator.yaml", "state_dir: "+dir+"\n")
	if code, _, stderr := clitest.Run(rootCommand(), "restore", "--config", file); code != 1 ||
		!strings.Contains(stderr, "the state folder contains no run") {
		t.Errorf("exit status %d, %s", code, stderr)
	}
	if code, _, stderr := clitest.Run(rootCommand(), "restore", "--config", file, "--set",
		"state_dir=/none"); code != 1 || !strings.Contains(stderr, "/none") {
		t.Errorf("exit status %d, %s", code, stderr)
	}
}

// TestRestoreMakesFolder checks that a backup can be restored into a folder that does not exist yet.
func TestRestoreMakesFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "state")
	file, backup := write(t, "coordinator.yaml", "state_dir: "+dir+"\n"), write(t, "backup.tar", "")
	if code, _, stderr := clitest.Run(rootCommand(), "restore", backup, "--config", file); code != 1 ||
		strings.Contains(stderr, "no such file or directory") ||
		strings.Contains(stderr, "was created as root") != (os.Geteuid() == 0) {
		t.Errorf("exit status %d, %s", code, stderr)
	}
	_, _, stderr := clitest.Run(rootCommand(), "restore", backup, "--config", file)
	if strings.Contains(stderr, "warning") {
		t.Errorf("a folder that is there: %s", stderr)
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		t.Errorf("the state folder: %v", err)
	}
}
