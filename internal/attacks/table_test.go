package attacks

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	root  = "../.."
	page  = root + "/docs/SECURITY.md"
	begin = "<!-- make attacks writes this table -->\n"
	end   = "<!-- end -->\n"
)

// markdown returns the table of attacks in Markdown.
func markdown() string {
	var b strings.Builder
	b.WriteString("| attack | tried | by | promise | tests |\n|---|---|---|---|---|\n")
	for _, a := range attacks {
		var names []string
		for _, of := range a.tests {
			names = append(names, of.folder+" "+strings.Join(of.tests, ", "))
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", a.name, a.what, a.by, a.promise, strings.Join(names, "; "))
	}
	return b.String()
}

// withTable returns the page with its table of attacks replaced by the current table.
func withTable(t *testing.T, text []byte) []byte {
	t.Helper()
	before, rest, found := bytes.Cut(text, []byte(begin))
	_, after, closed := bytes.Cut(rest, []byte(end))
	if !found || !closed {
		t.Fatalf("%s has no place for the table", page)
	}
	return slices.Concat(before, []byte(begin+"\n"+markdown()+"\n"+end), after)
}

// TestTable checks that docs/SECURITY.md contains the current table, and that every test in the table exists.
func TestTable(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(text, withTable(t, text)) {
		t.Error("docs/SECURITY.md has another table; make attacks writes it")
	}
	for _, a := range attacks {
		for _, of := range a.tests {
			for _, name := range of.tests {
				if !exists(t, of.folder, name) {
					t.Errorf("%s: %s has no test %s", a.name, of.folder, name)
				}
			}
		}
	}
}

func exists(t *testing.T, folder, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^func ` + name + `\(`)
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if declared.Match(text) {
			return true
		}
	}
	return false
}
