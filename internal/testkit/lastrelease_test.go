package testkit

import (
	"os/exec"
	"testing"
)

// TestLastRelease checks that LastRelease returns the newest version tag before the present commit and ignores other
// tags.
func TestLastRelease(t *testing.T) {
	dir := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=n", "-c", "user.email=e@example.org"},
			args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	git("init", "--quiet")
	for i, want := range []string{FallbackCommit, FallbackCommit, "v0.1.0", "v0.1.0", "v0.2.0"} {
		git("commit", "--quiet", "--allow-empty", "--message=next")
		if got := LastRelease(dir); got != want {
			t.Errorf("commit %d: the last release is %s, want %s", i+1, got, want)
		}
		switch i {
		case 1:
			git("tag", "v0.1.0")
		case 2:
			git("tag", "vendor-drop")
		case 3:
			git("tag", "v0.2.0")
		}
	}
}
