package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/clitest"
)

// TestRootCommands creates consecutive versions of a root document and installs them in order. A document that does not
// follow the installed version, or that excludes the coordinator's key, must be refused.
func TestRootCommands(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	run := func(want string, args ...string) string {
		t.Helper()
		code, out, stderr := clitest.Run(rootCommand(), args...)
		if refused := strings.HasPrefix(want, "refused: "); refused != (code != 0) ||
			!strings.Contains(out+stderr, strings.TrimPrefix(want, "refused: ")) {
			t.Fatalf("%v: exit status %d, %s%s; want %q", args, code, out, stderr, want)
		}
		return strings.TrimSpace(out)
	}
	install := func(want, document string, more ...string) {
		t.Helper()
		run(want, append([]string{"root", "install", at(document), "--config", at("coordinator.yaml")}, more...)...)
	}
	run("", "init", "plant_7", "--dir", dir, "--broker", "mqtts://gw.example:8883", "--features", "a", "--target", "y")
	if err := os.Mkdir(at("state"), 0o700); err != nil {
		t.Fatal(err)
	}
	second, spare := run("", "key", "new", at("second.key")), run("", "key", "new", at("spare.key"))
	run("version      1", "root", "show", at("root"))
	run("refused: is not a root key of version 1", "root", "rotate", at("root"), "--key", at("spare.key"), "--out",
		at("x"))
	run("refused: --key FILE", "root", "rotate", at("root"), "--finish")
	run("refused: --key already names the new root key", "root", "rotate", at("root"), "--key", at("second.key"),
		"--lost",
		"--root-key", at("spare.key"), "--out", at("x"))
	run("refused: --admit stolen-1: this device is not revoked", "root", "rotate", at("root"), "--key",
		at("root.key"), "--admit", "stolen-1", "--out", at("x"))
	run("coordinator  "+second, "root", "rotate", at("root"), "--key", at("root.key"), "--coordinator-key", second,
		"--revoke", "stolen-1", "--out", at("root-2"))
	run("refused: already exists", "root", "rotate", at("root"), "--key", at("root.key"), "--out", at("root-2"))
	run("version      3", "root", "rotate", at("root-2"), "--key", at("root.key"), "--finish", "--out", at("root-3"))
	install("refused: version is 3, but version 1 must be followed by version 2", "root-3")
	install("version 2 of the root document is installed", "root-2")
	install("version 2 of the root document is installed", "root-2")
	install("refused: does not contain this coordinator's key", "root-3")
	key := []string{"--set", "identity.key_file=" + at("second.key")}
	install("version 3", "root-3", key...)
	run("invalid root document: signed by 1 of its root keys, but 2 are required", "root",
		"rotate", at("root-3"), "--key", at("root.key"), "--root-keys", spare, "--threshold", "2", "--out",
		at("root-4"))
	install("refused: but 2 are required", "root-4", key...)
	run("refused: --key FILE", "root", "sign", at("root-4"))
	run("refused: only one root key", "root", "sign", at("root-3"), "--key", at("spare.key"))
	if said := run("signatures   2 required", "root", "sign", at("root-4"), "--key", at("spare.key")); strings.Contains(
		said, "invalid root document") {
		t.Errorf("signed by both: %s", said)
	}
	install("version 4", "root-4", key...)
	run("version      5", "root", "rotate", at("root-4"), "--lost", "--key", at("second.key"), "--out", at("root-5"))
	install("refused: version 5 has too few signatures by root keys of version 4", "root-5", key...)
}
