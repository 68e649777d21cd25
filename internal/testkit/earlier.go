package testkit

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The commits that stand for earlier versions, from before there were releases.
const (
	// Protocol1 is the last one of version 1 of the protocol, whose state folders had no slots.
	Protocol1 = "d2b9179eed44acf097878700868894adf37b8120"
	// Protocol2 froze version 2 of the protocol: from there on programs of different versions work together.
	Protocol2 = "d8c9cfe885712b03dc39c997ac747912344ac86c"
	// Cluster1 is the first one whose coordinators take turns.
	Cluster1 = "2a43d628c2ce2ddaf3ff4b6e14e3d868290b5c00"
)

// LastRelease is the newest tag of a version before the present commit of the repository at root, or Protocol2 if
// there is none.
func LastRelease(root string) string {
	tag, err := exec.Command("git", "-C", root, "describe", "--tags", "--abbrev=0", "--match=v[0-9]*", "HEAD^").Output()
	if err != nil {
		return Protocol2
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
