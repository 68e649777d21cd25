//go:build attacks

package attacks

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestAttacks tries each attack by its tests, and writes the table when all promises hold.
func TestAttacks(t *testing.T) {
	wanted := map[string][]string{} // by folder
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

// run runs tests of a package, and notes which have passed: one that is skipped has not.
func run(t *testing.T, folder string, names []string, passed map[string]bool) {
	t.Helper()
	command := exec.Command("go", "test", "-json", "-count=1", "-tags", "machine", "-run",
		"^("+strings.Join(names, "|")+")$", "./"+folder)
	command.Dir = root
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
