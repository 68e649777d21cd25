package logging_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/slogtest"
	"time"

	"github.com/fedmesh/fedmesh/internal/logging"
)

func newLogger(t *testing.T, o logging.Options) (*slog.Logger, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	logger, err := logging.New(&out, o)
	if err != nil {
		t.Fatal(err)
	}
	return logger, &out
}

// handle passes a record with a fixed time directly to the handler of the logger.
func handle(t *testing.T, l *slog.Logger, level slog.Level, message string, args ...any) {
	t.Helper()
	r := slog.NewRecord(time.Date(2026, 3, 1, 12, 4, 5, 6789, time.UTC), level, message, 0)
	r.Add(args...)
	if err := l.Handler().Handle(context.Background(), r); err != nil {
		t.Fatal(err)
	}
}

func wantOutput(t *testing.T, out *bytes.Buffer, want string) {
	t.Helper()
	if got, want := out.String(), strings.TrimPrefix(want, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	out.Reset()
}

func TestBadOptions(t *testing.T) {
	for want, o := range map[string]logging.Options{
		`unknown log level "loud"; the levels are debug, info, warn and error`: {Level: "loud", Format: "text"},
		`unknown log level ""; the levels are debug, info, warn and error`:     {Format: "text"},
		`unknown log format "xml"; the formats are text and json`:              {Level: "info", Format: "xml"},
	} {
		if l, err := logging.New(new(bytes.Buffer), o); l != nil || err == nil || err.Error() != want {
			t.Errorf("got %v, %v; want the error %s", l, err, want)
		}
	}
}

func TestLevels(t *testing.T) {
	ctx := context.Background()
	for name, least := range map[string]slog.Level{
		"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
	} {
		for _, format := range []string{"text", "json"} {
			for _, journal := range []bool{false, true} {
				l, _ := newLogger(t, logging.Options{Level: name, Format: format, WritesToJournald: journal})
				if !l.Enabled(ctx, least) || l.Enabled(ctx, least-1) {
					t.Errorf("%s %s: the least level is not %v", name, format, least)
				}
			}
		}
	}
}

type resolved struct{}

func (resolved) LogValue() slog.Value { return slog.StringValue("resolved value") }

func TestText(t *testing.T) {
	l, out := newLogger(t, logging.Options{Level: "debug", Format: "text"})
	handle(t, l, slog.LevelInfo, "round 12 closed", "accepted", 6, "took", 1203948571*time.Nanosecond)
	handle(t, l, slog.LevelDebug, "values", "f", 0.5, "b", true, "u", uint8(3), "l", []string{"a", "b"}, "nil", nil,
		"empty", "")
	handle(t, l, slog.LevelWarn, "durations", "a", 90*time.Minute+time.Millisecond, "b", -1234567*time.Nanosecond,
		"c", 12*time.Nanosecond)
	handle(t, l, slog.LevelError, "broker lost", "err", errors.New("dial tcp: refused"), "cause", errors.New("EOF"),
		"broken", (*brokenError)(nil))
	handle(t, l, slog.LevelInfo+2, "when", "at", time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), "v", resolved{})
	handle(t, l, slog.LevelInfo, "quotes", "path", `C:\x`, "eq", "a=b", "q", `say "hi"`, "a key", "é日本")
	handle(t, slog.New(l.With("fed", "f1").WithGroup("broker").With("url", "x").WithGroup("").Handler()),
		slog.LevelInfo, "grouped", slog.Group("tls", "ca", 1, slog.Group("none")), slog.Group("", "flat", 2),
		slog.Attr{})
	wantOutput(t, out, `
12:04:05 INFO  round 12 closed accepted=6 took=1.2s
12:04:05 DEBUG values f=0.5 b=true u=3 l="[a b]" nil=<nil> empty=""
12:04:05 WARN  durations a=1h30m0s b=-1.23ms c=12ns
12:04:05 ERROR broker lost err="dial tcp: refused" cause=EOF broken=<nil>
12:04:05 INFO+2 when at=2026-01-02T03:04:05Z v="resolved value"
12:04:05 INFO  quotes path=C:\x eq="a=b" q="say \"hi\"" "a key"=é日本
12:04:05 INFO  grouped fed=f1 broker.url=x broker.tls.ca=1 broker.flat=2
`)
}

type brokenError struct{ text string }

func (e *brokenError) Error() string { return e.text }

func TestJSON(t *testing.T) {
	l, out := newLogger(t, logging.Options{Level: "info", Format: "json"})
	handle(t, l, slog.LevelInfo, "round closed", "accepted", 6, "err", errors.New("a\nb"))
	wantOutput(t, out, `
{"time":"2026-03-01T12:04:05.000006789Z","level":"INFO","msg":"round closed","accepted":6,"err":"a\nb"}
`)
}

func TestJournal(t *testing.T) {
	for format, want := range map[string]string{
		"text": `
<7>DEBUG m
<6>INFO  m k=v
<4>WARN  m g.k=v
<3>ERROR m time=mine
<3>ERROR+4 m
<6>INFO+1 m
`,
		"json": `
<7>{"level":"DEBUG","msg":"m"}
<6>{"level":"INFO","msg":"m","k":"v"}
<4>{"level":"WARN","msg":"m","g":{"k":"v"}}
<3>{"level":"ERROR","msg":"m","time":"mine"}
<3>{"level":"ERROR+4","msg":"m"}
<6>{"level":"INFO+1","msg":"m"}
`,
	} {
		l, out := newLogger(t, logging.Options{Level: "debug", Format: format, WritesToJournald: true})
		l.Debug("m")
		l.With("k", "v").Info("m")
		l.WithGroup("g").Warn("m", "k", "v")
		l.Error("m", "time", "mine")
		l.Log(context.Background(), slog.LevelError+4, "m")
		l.Log(context.Background(), slog.LevelInfo+1, "m")
		wantOutput(t, out, want)
	}
}

func TestInjection(t *testing.T) {
	const evil = "a\n<0>12:00:00 ERROR b\r\t\x1b[2J\x00\x7f\u009b\u202e\u2028\xff\ufffd"
	l, out := newLogger(t, logging.Options{Level: "info", Format: "text", WritesToJournald: true})
	l.With(evil, 1).WithGroup(evil).Info(evil, "k", evil,
		"e", errors.New(evil), evil, slog.GroupValue(slog.String(evil, evil)))
	line := out.String()
	if n := strings.Count(line, "\n"); n != 1 {
		t.Errorf("%d lines: %q", n, line)
	}
	for _, r := range strings.TrimSuffix(line, "\n") {
		if !strconv.IsPrint(r) {
			t.Errorf("%q has the raw character %U", line, r)
		}
	}
	l.Info("tab\there, \\ and \"quotes\" stay é", "k", "a\nb")
	if got, want := strings.SplitAfter(out.String(), "\n")[1],
		`<6>INFO  tab\there, \ and "quotes" stay é k="a\nb"`+"\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestWriteError(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		for _, journal := range []bool{false, true} {
			l, err := logging.New(failing{}, logging.Options{Level: "info", Format: format, WritesToJournald: journal})
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Handler().Handle(context.Background(), slog.Record{}); err == nil ||
				err.Error() != "disk full" {
				t.Errorf("%s: got %v, want disk full", format, err)
			}
		}
	}
}

func TestHandlerContract(t *testing.T) {
	parsers := map[string]func(*testing.T, string) map[string]any{"text": parseText, "json": parseJSON}
	for format, parse := range parsers {
		var out *bytes.Buffer
		slogtest.Run(t, func(t *testing.T) slog.Handler {
			var l *slog.Logger
			l, out = newLogger(t, logging.Options{Level: "info", Format: format})
			return l.Handler()
		}, func(t *testing.T) map[string]any { return parse(t, out.String()) })
	}
}

func parseJSON(t *testing.T, line string) map[string]any {
	var m map[string]any
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// parseText parses a log line. It supports only the simple values that the package slogtest logs.
func parseText(t *testing.T, line string) map[string]any {
	m := map[string]any{}
	words := strings.Fields(line)
	if strings.Contains(words[0], ":") {
		m[slog.TimeKey], words = words[0], words[1:]
	}
	m[slog.LevelKey], m[slog.MessageKey] = words[0], words[1]
	for _, word := range words[2:] {
		key, value, ok := strings.Cut(word, "=")
		if !ok {
			t.Fatalf("%q in %q is no attribute", word, line)
		}
		path := strings.Split(key, ".")
		group := m
		for _, name := range path[:len(path)-1] {
			if group[name] == nil {
				group[name] = map[string]any{}
			}
			group = group[name].(map[string]any)
		}
		group[path[len(path)-1]] = value
	}
	return m
}

func TestConcurrentUse(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		l, out := newLogger(t, logging.Options{Level: "debug", Format: format, WritesToJournald: true})
		const writers, lines = 8, 50
		levels := []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}
		want := map[string]int{}
		var wg sync.WaitGroup
		for w := range writers {
			level := levels[w%len(levels)]
			want[map[slog.Level]string{-4: "<7>", 0: "<6>", 4: "<4>", 8: "<3>"}[level]+level.String()] += lines
			wg.Go(func() {
				for i := range lines {
					l.With("w", w).Log(context.Background(), level, fmt.Sprintf("line %d of %d", i, w))
				}
			})
		}
		wg.Wait()
		got := map[string]int{}
		for line := range strings.Lines(out.String()) {
			name := strings.Fields(strings.NewReplacer(`{"level":"`, "", `"`, " ").Replace(line))[0]
			got[name]++
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: lines by priority and level: got %v, want %v", format, got, want)
		}
	}
}
