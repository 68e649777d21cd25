package testkit

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// FallbackCommit is the commit that compatibility tests use as the previous release until the first release is tagged.
// It is the newest commit that changed the protocol or the format of a state folder.
const FallbackCommit = "c701f3b68bf09d81b8cc89819f17fc2cfeb6214a"

// LastRelease returns the newest version tag that is an ancestor of HEAD in the repository at root. LastRelease returns
// FallbackCommit if no such tag exists.
func LastRelease(root string) string {
	tag, err := exec.Command("git", "-C", root, "describe", "--tags", "--abbrev=0", "--match=v[0-9]*", "HEAD^").Output()
	if err != nil {
		return FallbackCommit
	}
	return strings.TrimSpace(string(tag))
}

// BuildEarlier builds the programs from an earlier commit of the repository at root. It fails the test if the commit is
// missing, for example in a shallow clone.
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
