// Package surface compares what a daemon shows of its events with golden files.
package surface

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"log/slog"
	"path"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/logging"
	"github.com/fedmesh/fedmesh/internal/testkit"
)

// EventLine is an event and its line in the log, after journald's priority; "" = the event is not logged.
type EventLine struct {
	Event   any
	WantLog string
}

// CompareLines passes each event to observe, and compares what observe writes with the line.
func CompareLines(t *testing.T, lines []EventLine, observe func(w io.Writer, event any)) {
	t.Helper()
	for _, tt := range lines {
		var b strings.Builder
		observe(&b, tt.Event)
		got := b.String()
		if tt.WantLog != "" {
			tt.WantLog += "\n"
		}
		if got != tt.WantLog {
			t.Errorf("%T\ngives %q\nwant  %q", tt.Event, got, tt.WantLog)
		}
	}
}

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
	return logging.Options{Level: "debug", Format: "text", Journal: true}
}

// RecordOutputs passes each event to observe, and writes to out what was logged and what changed in the status line and
// in readiness.
func RecordOutputs(t *testing.T, out io.Writer, lines []EventLine, status fmt.Stringer, ready func() error,
	observe func(log *slog.Logger, event any)) {
	t.Helper()
	statusBefore, readyBefore := status.String(), fmt.Sprint(ready())
	for _, l := range lines {
		var logged strings.Builder
		log, err := logging.New(&logged, DebugLogOptions())
		if err != nil {
			t.Fatal(err)
		}
		observe(log, l.Event)
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

// WantAllEvents fails for each event type of the packages that is not among the lines. Of package round it wants those
// that the program's machine emits.
func WantAllEvents(t *testing.T, lines []EventLine, packages ...string) {
	t.Helper()
	played := map[string]bool{}
	for _, l := range lines {
		played[reflect.TypeOf(l.Event).String()] = true
	}
	for _, pkg := range packages {
		file, err := parser.ParseFile(token.NewFileSet(), "../../"+pkg+"/facts.go", nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		method := "fact"
		if pkg == "round" {
			method = map[string]string{"agent": "ofAgent", "coordinator": "ofCoordinator"}[packages[0]]
		}
		found := 0
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv == nil || f.Name.Name != method {
				continue
			}
			found++
			name := path.Base(pkg) + "." + f.Recv.List[0].Type.(*ast.Ident).Name
			if !played[name] {
				t.Errorf("%s is in no line of the story", name)
			}
		}
		if found == 0 {
			t.Errorf("found no events in %s: were they moved?", pkg)
		}
	}
}
