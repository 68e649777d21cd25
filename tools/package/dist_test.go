package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

var update = flag.Bool("update", false, "rewrite testdata")

// clone clones the repository at the current commit and applies the uncommitted changes of tracked files. The clone is
// necessary, because the go command does not read the version from a git worktree.
func clone(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "fedmesh")
	shell(t, root, "git clone --quiet --shared . "+dir+" && git diff --binary HEAD | (cd "+dir+" && git apply "+
		"--allow-empty)")
	return dir
}

// shell runs a shell command and returns its output. shell fails the test if the command fails.
func shell(t *testing.T, dir, line string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-c", "set -o pipefail; "+line)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

// need skips the test if a program is missing. In CI, where all programs are installed, it fails the test instead.
func need(t *testing.T, name, debian string) {
	t.Helper()
	if _, err := exec.LookPath(name); err == nil {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s is missing (Debian: %s)", name, debian)
	}
	t.Skipf("%s is missing (Debian: %s)", name, debian)
}

// TestDist builds the release files for one architecture twice and checks them. TestDist skips files that need PyPI.
func TestDist(t *testing.T) {
	out, again := filepath.Join(t.TempDir(), "dist"), filepath.Join(t.TempDir(), "dist")
	// Build concurrently, because the compression takes a minute on one core.
	var both sync.WaitGroup
	for _, to := range []string{out, again} {
		from := clone(t)
		both.Go(func() {
			if err := run(from, to, "", "amd64", "deb,rpm,apk,tar,sbom,oci"); err != nil {
				t.Error(err)
			}
		})
	}
	if both.Wait(); t.Failed() {
		return
	}
	t.Run("reproducible", func(t *testing.T) { sameFiles(t, out, again) })
	t.Run("sums", func(t *testing.T) { shell(t, out, "sha256sum --strict --check SHA256SUMS") })
	t.Run("lintian", func(t *testing.T) {
		need(t, "lintian", "lintian")
		if said := shell(t, out, "lintian --allow-root --fail-on none --pedantic --display-info *.deb"); said != "" {
			t.Errorf("lintian says:\n%s", said)
		}
	})
	for _, p := range programs {
		name := p.name
		t.Run(name, func(t *testing.T) {
			deb := filepath.Base(glob(t, out, name+"_*.deb"))
			t.Run("version", func(t *testing.T) { versionInside(t, out, name, deb) })
			t.Run("sbom", func(t *testing.T) {
				bill, err := os.ReadFile(glob(t, out, name+"-*.cdx.json"))
				if err != nil {
					t.Fatal(err)
				}
				for module, linked := range map[string]bool{"github.com/spf13/cobra@": true,
					"github.com/cpuguy83/go-md2man/": false} {
					if strings.Contains(string(bill), "pkg:golang/"+module) != linked {
						t.Errorf("%s is linked: %v, want %v (pages are made by tests, not by daemons)", module, !linked,
							linked)
					}
				}
			})
			t.Run("deb", func(t *testing.T) {
				golden(t, name+".deb", shell(t, out, "dpkg-deb --contents "+deb+" | awk '{ print $1, $2, $6 }'")+
					"conffiles:\n"+shell(t, out, "dpkg-deb --info "+deb+" conffiles 2>/dev/null || echo none"))
			})
			t.Run("rpm", func(t *testing.T) {
				need(t, "rpm", "rpm")
				golden(t, name+".rpm", shell(t, out,
					"rpm -qp --qf '[%{FILEMODES:perms} %{FILEUSERNAME}/%{FILEGROUPNAME} %{FILENAMES} "+
						"%{FILEFLAGS:fflags}\n]' "+name+"-*.rpm"))
			})
			t.Run("apk", func(t *testing.T) {
				golden(t, name+".apk", shell(t, out,
					"tar --warning=no-unknown-keyword -tvzf "+name+"_*.apk | awk '{ print $1, $2, $6 }'"))
			})
			t.Run("tarball", func(t *testing.T) {
				golden(t, name+".tar", shell(t, out, "tar -tvzf "+name+"-*.tar.gz | awk '{ print $1, $2, $6 }'"))
			})
			if p.service {
				t.Run("oci", func(t *testing.T) { checkImages(t, out, name, "linux/amd64") })
			}
		})
	}
}

// versionInside checks that the packaged program reports the package's version.
func versionInside(t *testing.T, out, name, deb string) {
	dir := t.TempDir()
	said := shell(t, out, "dpkg-deb --extract "+deb+" "+dir+" && "+dir+"/usr/bin/"+name+" --version")
	text := strings.Fields(said)
	v := version{text: text[len(text)-1]}
	if want := shell(t, out, "dpkg-deb --field "+deb+" Version"); want != v.debian()+"-1\n" {
		t.Errorf("the program says %q, the package %q", strings.TrimSpace(said), want)
	}
}

// sameFiles checks that two folders contain the same files.
func sameFiles(t *testing.T, a, b string) {
	names := shell(t, a, "ls")
	if other := shell(t, b, "ls"); other != names {
		t.Fatalf("files\n%swant\n%s", other, names)
	}
	for name := range strings.FieldsSeq(names) {
		one, err := os.ReadFile(filepath.Join(a, name))
		if err != nil {
			t.Fatal(err)
		}
		two, err := os.ReadFile(filepath.Join(b, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(one, two) {
			t.Errorf("%s differs between two runs", name)
		}
	}
}

func glob(t *testing.T, dir, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: found %v (%v), want one", pattern, found, err)
	}
	return found[0]
}

// Patterns that remove variable parts from the listings: the version in the top folder of the tarball, and the manual
// pages of subcommands.
var (
	versions = regexp.MustCompile(`-[0-9]+\.[0-9]+\.[0-9]+[^ /]*-linux`)
	pages    = regexp.MustCompile(`(?m)^.*/man(1)?/(agentd|coordinator|fedlab)-[a-z-]+\.1.*\n`)
)

// golden compares a listing with a golden file in testdata, or rewrites the file if the test runs with -update.
func golden(t *testing.T, name, got string) {
	t.Helper()
	got = pages.ReplaceAllString(versions.ReplaceAllString(got, "-VERSION-linux"), "")
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := put(path, []byte(got)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s holds\n%s\nwant\n%s(go test -update rewrites it)", name, got, want)
	}
}

func TestChoose(t *testing.T) {
	if all, err := choose(targets, ""); err != nil || len(all) != 4 {
		t.Errorf("no names choose %v (%v), want all four", all, err)
	}
	if two, err := choose(targets, "armv6,amd64"); err != nil || fmt.Sprint(two) != "[armv6 amd64]" {
		t.Errorf("chose %v (%v), want armv6 and amd64", two, err)
	}
	if _, err := choose(targets, "amd64,vax"); err == nil ||
		!strings.Contains(err.Error(), `"vax", only [amd64 arm64 armv7 armv6]`) {
		t.Errorf("a processor that there is not: error %v, want one that names it, and those that there are", err)
	}
}
