//go:build attacks

package attacks

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestAttacks runs the tests of all attacks, and writes the table into docs/SECURITY.md if all tests pass.
func TestAttacks(t *testing.T) {
	wanted := map[string][]string{} // names of the tests by folder
	for _, a := range attacks {
		for _, of := range a.tests {
			wanted[of.folder] = append(wanted[of.folder], of.tests...)
		}
	}
	passed := map[string]bool{}
	for folder, names := range wanted {
		slices.Sort(names)
		run(t, folder, slices.Compact(names), passed)
	}
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			for _, of := range a.tests {
				for _, name := range of.tests {
					if !passed[of.folder+" "+name] {
						t.Errorf("%s in %s has not passed", name, of.folder)
					}
				}
			}
		})
	}
	if t.Failed() {
		return
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(page, withTable(t, text), 0o666); err != nil {
		t.Fatal(err)
	}
}

// run runs the named tests of a package and records the tests that passed. A skipped test counts as not passed.
func run(t *testing.T, folder string, names []string, passed map[string]bool) {
	t.Helper()
	command := exec.Command("go", "test", "-json", "-count=1", "-tags", "machine", "-run",
		"^("+strings.Join(names, "|")+")$", ".")
	command.Dir = filepath.Join(root, folder) // tools/console is a module of its own
	out, err := command.Output()
	if err != nil {
		t.Errorf("%s: %v\n%s", folder, err, out[:min(len(out), 4<<10)])
	}
	for lines := json.NewDecoder(bytes.NewReader(out)); ; {
		var e struct{ Action, Test string }
		if err := lines.Decode(&e); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		if e.Action == "pass" && e.Test != "" {
			passed[folder+" "+e.Test] = true
		}
	}
}
