//go:build linux

package machine

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// ownGroups creates separate control groups (cgroups) for one machine and returns their folders. Two machines in the
// same control group would stop each other's services.
func ownGroups(t testing.TB, name string) []string {
	t.Helper()
	mine, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	var groups []string
	for line := range strings.Lines(string(mine)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		mounts := map[string][]string{"": {"/sys/fs/cgroup/unified", "/sys/fs/cgroup"},
			"name=systemd": {"/sys/fs/cgroup/systemd"}}[parts[1]]
		for _, mount := range mounts {
			if _, err := os.Stat(filepath.Join(mount, "cgroup.procs")); err != nil {
				continue
			}
			group := filepath.Join(mount, parts[2], name)
			if err := os.Mkdir(group, 0o755); err != nil {
				t.Fatal(err)
			}
			groups = append(groups, group)
			break
		}
	}
	return groups
}

// removeGroups removes the given control groups and their subgroups. It waits until all processes in the groups have
// ended, because the kernel may still be cleaning up.
func removeGroups(t testing.TB, groups []string) {
	for _, group := range groups {
		var all []string
		err := filepath.WalkDir(group, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				all = append(all, path)
			}
			return err
		})
		for _, path := range slices.Backward(all) {
			err = errors.Join(err, removeIdle(path))
		}
		if err != nil {
			t.Errorf("control groups are left: %v", err)
		}
	}
}

// removeIdle waits until a control group contains no process, and then removes the group.
func removeIdle(path string) error {
	late := time.After(patience)
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		err := os.Remove(path)
		if !errors.Is(err, syscall.EBUSY) {
			return err
		}
		select {
		case <-again.C:
		case <-late:
			return err
		}
	}
}
