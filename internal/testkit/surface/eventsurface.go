// Package surface compares what a daemon shows of its events with golden files.
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

// Page is a status page.
type Page interface {
	Draw(width int) string
}

// ComparePage compares the text and the JSON of a page with testdata/NAME.txt and testdata/NAME.json, and wants no line
// of the text to be wider than the terminal.
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

// Clock is a clock that a test sets.
type Clock struct{ time.Time }

// NewClock returns a clock that shows noon of 2026-03-01.
func NewClock() *Clock { return &Clock{time.Date(2026, 3, 1, 12, 0, 0, 0, time.Local)} }

// Now returns the clock's time.
func (c *Clock) Now() time.Time { return c.Time }

// Advance moves the clock forward.
func (c *Clock) Advance(d time.Duration) { c.Time = c.Add(d) }

// DebugLogOptions returns options with everything logged and without times, as under systemd.
func DebugLogOptions() logging.Options {
	return logging.Options{Level: "debug", Format: "text", WritesToJournald: true}
}

// RecordOutputs passes each event to pass, and writes to out what was logged and what changed in the status line and
// in readiness.
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

// RecordConditions writes to out each condition that the events begin, and wants each to have a remedy.
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

// WantAllEvents fails for each event type of the packages, or of the packages below them, that is not in the list
// events. An event type is an exported type with a method Describe. The machine of agents, round/agentround, does not
// count as a package below round.
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

// EventTypes returns the names of the types of a folder that have a method Describe.
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

// BoardObserver passes the descriptions of events to a board.
type BoardObserver struct{ *status.ConditionBoard }

// Observe implements observe.Observer.
func (o BoardObserver) Observe(e observe.Event) {
	var d observe.EventDescription
	e.Describe(&d)
	o.ApplyDescription(&d)
}
