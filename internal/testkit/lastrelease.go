package testkit

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// FallbackCommit stands for the last release until there is one: the newest commit that changed the protocol or the
// format of a state folder.
const FallbackCommit = "0182f73bdc56ca72807377df817c38132589cac8"

// LastRelease is the newest tag of a version before the present commit of the repository at root, or FallbackCommit if
// there is none.
func LastRelease(root string) string {
	tag, err := exec.Command("git", "-C", root, "describe", "--tags", "--abbrev=0", "--match=v[0-9]*", "HEAD^").Output()
	if err != nil {
		return FallbackCommit
	}
	return strings.TrimSpace(string(tag))
}

// BuildEarlier builds the programs of a commit of the repository at root. A clone that lacks the commit fails the
// test.
func BuildEarlier(t testing.TB, root, commit string) Programs {
	t.Helper()
	source, dir := filepath.Join(t.TempDir(), "source"), t.TempDir()
	for _, args := range [][]string{
		{"-C", root, "cat-file", "-e", commit + "^{commit}"},
		{"clone", "--quiet", "--shared", "--no-checkout", root, source},
		{"-C", source, "checkout", "--quiet", "--detach", commit},
	} {
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%sthe programs of %s are built from history, which a shallow clone lacks: "+
				"git fetch --unshallow --tags", strings.Join(args, " "), err, out, commit)
		}
	}
	if err := BuildInto(source, dir, "GOFLAGS=-buildvcs=true"); err != nil {
		t.Fatal(err)
	}
	return Programs(dir)
}
