//go:build chaos

package chaos

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
)

// fault is one row of the table in the documentation: a fault and the behaviour of fedmesh that the documentation
// promises.
type fault struct {
	name, what, promise string
	try                 func(t *testing.T) (seen string)
}

// result is a fault with the behaviour of fedmesh that the test observed.
type result struct {
	fault
	seen string
}

// board collects the results of all faults, in the order of the faults.
type board struct {
	mu   sync.Mutex
	rows []result
}

var results board

// run tests a fault as a subtest. It adds a row to the board only if fedmesh behaved as promised.
func (b *board) run(t *testing.T, f fault) {
	t.Helper()
	t.Run(f.name, func(t *testing.T) {
		seen := f.try(t)
		if t.Failed() || t.Skipped() {
			return
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.rows = append(b.rows, result{f, seen})
	})
}

// markdown returns the table in Markdown, one row per fault.
func (b *board) markdown() string {
	var text strings.Builder
	text.WriteString("| fault | promise | seen | command |\n|---|---|---|---|\n")
	for _, r := range b.rows {
		fmt.Fprintf(&text, "| %s | %s | %s | `make chaos ONLY=%s` |\n", r.what, r.promise, r.seen, r.name)
	}
	return text.String()
}

// The lines that enclose the table in a Markdown file.
const (
	tableBegin = "<!-- make chaos writes this table -->\n"
	tableEnd   = "<!-- end of the table -->\n"
)

// write replaces the table in a Markdown file. The rows of faults that were not tested in this run are kept.
func (b *board) write(path string) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, found1 := bytes.Cut(old, []byte(tableBegin))
	kept, after, found2 := bytes.Cut(rest, []byte(tableEnd))
	if !found1 || !found2 {
		return fmt.Errorf("%s has no lines %q and %q around its table", path, strings.TrimSpace(tableBegin),
			strings.TrimSpace(tableEnd))
	}
	merged := merge(string(kept), b.markdown())
	return os.WriteFile(path, []byte(string(before)+tableBegin+merged+tableEnd+string(after)), 0o644)
}

// merge replaces each old row by the new row with the same command, and appends the remaining new rows.
func merge(old, fresh string) string {
	command := func(row string) string { return row[strings.LastIndex(strings.TrimRight(row, " |\n"), "|")+1:] }
	rows := strings.SplitAfter(fresh, "\n")
	head, rows := rows[:2], rows[2:len(rows)-1]
	var out []string
	used := map[string]bool{}
	for i, row := range strings.SplitAfter(old, "\n") {
		if i < 2 || row == "" {
			continue
		}
		for _, f := range rows {
			if command(f) == command(row) {
				row = f
				used[command(f)] = true
			}
		}
		out = append(out, row)
	}
	for _, f := range rows {
		if !used[command(f)] {
			out = append(out, f)
		}
	}
	return strings.Join(append(head, out...), "")
}
