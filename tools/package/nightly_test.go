//go:build nightly

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDistFromNothing builds all release files twice and checks that they are identical byte by byte. The second build
// uses another folder and an empty build cache.
func TestDistFromNothing(t *testing.T) {
	out, again := filepath.Join(t.TempDir(), "dist"), filepath.Join(t.TempDir(), "dist")
	if err := run(clone(t), out, "", "", ""); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOCACHE", t.TempDir())
	if err := run(clone(t), again, "", "", ""); err != nil {
		t.Fatal(err)
	}
	sameFiles(t, out, again)
	shell(t, out, "sha256sum --strict --check SHA256SUMS")
	for _, name := range []string{"agentd", "coordinator"} {
		checkImages(t, out, name, "linux/amd64", "linux/arm64", "linux/arm/v7")
	}
	shell(t, out, "test $(grep -cE ' fedmesh-[0-9a-z.]+(-py3-none-any.whl|.tar.gz)$' SHA256SUMS) = 2")
}

// TestRelease builds a release from a tagged commit with a temporary signing key. It also checks that a release from an
// untagged commit is refused.
func TestRelease(t *testing.T) {
	need(t, "gpg", "gpg")
	dir, out := clone(t), filepath.Join(t.TempDir(), "dist")
	t.Setenv("GNUPGHOME", t.TempDir())
	if err := os.Chmod(os.Getenv("GNUPGHOME"), 0o700); err != nil {
		t.Fatal(err)
	}
	shell(t, dir, "gpg --batch --quiet --passphrase '' --quick-generate-key releases@example.org ed25519 sign never")
	release := "tools/release.sh build releases@example.org " + out + " -program agentd -arch amd64 -kind deb,sbom"
	commit := "git -c user.name=n -c user.email=e@example.org commit --quiet --all --allow-empty --message=next"
	if said := shell(t, dir, commit+"; ! "+release+" 2>&1"); !strings.Contains(said, "has no tag") {
		t.Errorf("a commit without a tag: %s", said)
	}
	if said := shell(t, dir, "git tag v9.8.7; touch new; ! "+release+" 2>&1"); !strings.Contains(said, "in no commit") {
		t.Errorf("a file that is in no commit: %s", said)
	}
	if said := shell(t, dir, "rm new; ! "+release+" 2>&1"); !strings.Contains(said, "must end in /v9") {
		t.Errorf("a version that Go does not know: %s", said)
	}
	shell(t, dir, "git tag -d v9.8.7; git tag v0.9.8; "+release)
	shell(t, out, "ls agentd_0.9.8-1_amd64.deb && gpg --verify SHA256SUMS.asc SHA256SUMS && "+
		"sha256sum --strict --check SHA256SUMS && grep -q cdx.json SHA256SUMS")
	shell(t, out, "echo >> SHA256SUMS; ! gpg --verify SHA256SUMS.asc SHA256SUMS")
	shell(t, dir, "gpgconf --kill gpg-agent")
}
