// Package surface compares the log lines, status pages and conditions that a daemon's events produce with golden files.
package surface

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/logging"
	"github.com/fedmesh/fedmesh/internal/status"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/observe"
)

// Page is a status page that can be drawn as text with a given width.
type Page interface {
	Draw(width int) string
}

// ComparePage compares a status page with the golden files testdata/NAME.txt (text) and testdata/NAME.json (JSON). It
// also fails if a line exceeds the width of a narrow terminal.
func ComparePage(t *testing.T, update bool, name string, p Page) {
	t.Helper()
	object, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		t.Error(err)
	}
	testkit.Golden(t, "testdata/"+name+".txt", p.Draw(110), update)
	testkit.Golden(t, "testdata/"+name+".json", string(object)+"\n", update)
	for line := range strings.Lines(p.Draw(40)) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 40 {
			t.Errorf("%d characters on a terminal of 40: %s", n, line)
		}
	}
}

// Clock is a manual clock: tests set and advance its time.
type Clock struct{ time.Time }

// NewClock returns a manual clock that is set to noon on 1 March 2026, local time.
func NewClock() *Clock { return &Clock{time.Date(2026, 3, 1, 12, 0, 0, 0, time.Local)} }

// Now returns the clock's time.
func (c *Clock) Now() time.Time { return c.Time }

// Advance moves the clock forward.
func (c *Clock) Advance(d time.Duration) { c.Time = c.Add(d) }

// DebugLogOptions returns log options for level debug without timestamps, as used under systemd.
func DebugLogOptions() logging.Options {
	return logging.Options{Level: "debug", Format: "text", WritesToJournald: true}
}

// RecordOutputs calls pass for each event and writes the resulting log lines to out. It also writes each change of the
// daemon's status line and readiness.
func RecordOutputs(t *testing.T, out io.Writer, events []observe.Event, status fmt.Stringer, ready func() error,
	pass func(log *slog.Logger, event observe.Event)) {
	t.Helper()
	statusBefore, readyBefore := status.String(), fmt.Sprint(ready())
	for _, e := range events {
		var logged strings.Builder
		log, err := logging.New(&logged, DebugLogOptions())
		if err != nil {
			t.Fatal(err)
		}
		pass(log, e)
		if logged.Len() == 0 {
			logged.WriteString("(not logged)\n")
		}
		_, _ = io.WriteString(out, logged.String())
		if now := status.String(); now != statusBefore {
			_, _ = fmt.Fprintf(out, "    status line: %s\n", now)
			statusBefore = now
		}
		if now := fmt.Sprint(ready()); now != readyBefore {
			_, _ = fmt.Fprintf(out, "    not ready: %s\n", now)
			readyBefore = now
		}
	}
}

// RecordConditions writes each condition that the events start to out. It fails the test if a condition has no remedy.
func RecordConditions(t *testing.T, out io.Writer, events []observe.Event) {
	t.Helper()
	_, _ = io.WriteString(out, "\nconditions\n")
	for _, e := range events {
		var d observe.EventDescription
		e.Describe(&d)
		for _, c := range d.Conditions {
			if c.Problem != "" {
				_, _ = fmt.Fprintf(out, "  %s: %s; %s\n", c.Name, c.Problem, c.Remedy)
			}
			if c.Problem != "" && c.Remedy == "" {
				t.Errorf("the condition %s has no remedy", c.Name)
			}
		}
	}
}

// WantAllEvents fails the test unless events contains every event type of the given packages and their subpackages. An
// event type is an exported type with a Describe method. The subpackage round/agentround is excluded.
func WantAllEvents(t *testing.T, events []observe.Event, packages ...string) {
	t.Helper()
	played := map[string]bool{}
	for _, e := range events {
		played[reflect.TypeOf(e).String()] = true
	}
	for _, pkg := range packages {
		found := 0
		err := filepath.WalkDir("../../"+pkg, func(dir string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.IsDir() {
				return err
			}
			if pkg == "round" && entry.Name() == "agentround" {
				return fs.SkipDir
			}
			for _, name := range EventTypes(t, dir) {
				found++
				event := filepath.Base(dir) + "." + name
				if !played[event] {
					t.Errorf("%s is in no line of the story", event)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if found == 0 {
			t.Errorf("found no events in %s: were they moved?", pkg)
		}
	}
}

// EventTypes returns the names of all types with a Describe method in the Go files of a folder.
func EventTypes(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv == nil || f.Name.Name != "Describe" || f.Type.Params.NumFields() != 1 {
				continue
			}
			if receiver, ok := f.Recv.List[0].Type.(*ast.Ident); ok && receiver.IsExported() {
				names = append(names, receiver.Name)
			}
		}
	}
	return names
}

// BoardObserver is an observer that reports each event to a condition board.
type BoardObserver struct{ *status.ConditionBoard }

// Observe implements observe.Observer.
func (o BoardObserver) Observe(e observe.Event) {
	var d observe.EventDescription
	e.Describe(&d)
	o.ApplyDescription(&d)
}
