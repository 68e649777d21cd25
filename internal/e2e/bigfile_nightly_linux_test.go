//go:build nightly

package e2e

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/store"
)

// memoryGroup is a control group with a memory limit, of cgroup version 1 or 2.
type memoryGroup struct {
	dir    string
	second bool
}

// newMemoryGroup creates a control group with a memory limit and without swap. newMemoryGroup requires root.
func newMemoryGroup(t *testing.T, bytes int) *memoryGroup {
	t.Helper()
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	g := &memoryGroup{dir: "/sys/fs/cgroup/memory", second: true}
	for line := range strings.Lines(string(own)) {
		if parts := strings.SplitN(strings.TrimSpace(line), ":", 3); len(parts) == 3 && parts[1] == "memory" {
			g.second = false
		}
	}
	limits := map[string]int{"memory.limit_in_bytes": bytes, "memory.memsw.limit_in_bytes": bytes}
	if g.second {
		g.dir = "/sys/fs/cgroup"
		limits = map[string]int{"memory.max": bytes, "memory.swap.max": 0}
		// Ignore the error, because the controller may already be enabled.
		_ = os.WriteFile(filepath.Join(g.dir, "cgroup.subtree_control"), []byte("+memory"), 0)
	}
	if g.dir, err = os.MkdirTemp(g.dir, "fedmesh-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(g.dir); err != nil {
			t.Error(err)
		}
	})
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		n, path := limits[name], filepath.Join(g.dir, name)
		if _, err := os.Stat(path); err != nil && strings.Contains(name, "sw") {
			continue // a kernel without swap does not have this file
		}
		if err := os.WriteFile(path, []byte(strconv.Itoa(n)), 0); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

// into makes a command start inside the control group.
func (g *memoryGroup) into(cmd *exec.Cmd) {
	script := `echo $$ >"$0/cgroup.procs" && exec "$@"`
	*cmd = *exec.Command("/bin/sh", append([]string{"-c", script, g.dir}, cmd.Args...)...)
}

// peak returns the peak memory of the control group in bytes, including cached files. It fails the test if the kernel
// killed a process because the memory limit was exceeded.
func (g *memoryGroup) peak(t *testing.T) (bytes int) {
	t.Helper()
	peak, events := "memory.max_usage_in_bytes", "memory.oom_control"
	if g.second {
		peak, events = "memory.peak", "memory.events"
	}
	if n := g.number(t, events, "oom_kill "); n > 0 {
		t.Errorf("%d processes were killed", n)
	}
	return g.number(t, peak, "")
}

// number returns the number that follows a word in a file of the control group.
func (g *memoryGroup) number(t *testing.T, file, word string) (n int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(g.dir, file))
	for line := range strings.Lines(string(text)) {
		if rest, found := strings.CutPrefix(line, word); found {
			if _, err := fmt.Sscan(rest, &n); err == nil {
				return n
			}
		}
	}
	t.Fatalf("%s/%s has no %q: %v\n%s", g.dir, file, word, err, text)
	return 0
}

// TestGigabyte checks that an agent can train on a file of 1 GB with a memory limit of 64 MiB and without swap
// (MemoryMax=64M, MemorySwapMax=0).
func TestGigabyte(t *testing.T) {
	if store.IsRAMBackedFolder(os.TempDir()) {
		t.Setenv("TMPDIR", "/var/tmp")
	}
	for _, b := range []bigFile{{megabytes: 1000}, {megabytes: 1000, zipped: true}, {megabytes: 1000, inputs: true}} {
		g := newMemoryGroup(t, 64<<20)
		b.start = func(cmd *exec.Cmd) {
			g.into(cmd)
			cmd.Env = append(os.Environ(), "GOMEMLIMIT=51MiB")
		}
		b.end = func() {
			t.Logf("at most %d MiB with copies of files, and nothing was killed", g.peak(t)>>20)
		}
		t.Logf("at most %.0f MiB that are no copies of files", b.learn(t)/(1<<20))
	}
}
