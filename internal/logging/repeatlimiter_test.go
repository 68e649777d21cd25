package logging_test

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/logging"
)

// clock is a clock that the test advances.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func newClock() *clock { return &clock{time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

func TestRepeatsAreSummedUp(t *testing.T) {
	c := newClock()
	l, out := newLogger(t, logging.Options{Level: "info", Format: "text", WritesToJournald: true, Now: c.Now})
	mqtt := l.With("part", "mqtt")
	for i := range 142 {
		mqtt.Warn("broker unreachable", "try", i)
		c.now = c.now.Add(100 * time.Millisecond)
	}
	want := "\n"
	for i := range 10 {
		want += fmt.Sprintf("<4>WARN  broker unreachable part=mqtt try=%d\n", i)
	}
	wantOutput(t, out, want)

	l.Error("broker unreachable")
	l.Info("other")
	wantOutput(t, out, "<3>ERROR broker unreachable\n<6>INFO  other\n")

	c.now = newClock().now.Add(time.Minute - 1)
	mqtt.Warn("broker unreachable", "try", 142)
	wantOutput(t, out, "")

	c.now = newClock().now.Add(time.Minute)
	l.Info("other")
	mqtt.Warn("broker unreachable", "try", 143)
	wantOutput(t, out, `
<4>WARN  broker unreachable: suppressed 133 times in the last minute part=mqtt
<6>INFO  other
<4>WARN  broker unreachable part=mqtt try=143
`)
}

// TestFlush checks that the numbers of suppressed lines are logged exactly once at the end, and that the logger still
// works afterwards.
func TestFlush(t *testing.T) {
	c := newClock()
	l, out := newLogger(t, logging.Options{Level: "info", Format: "text", WritesToJournald: true, Now: c.Now})
	for range 13 {
		l.With("part", "mqtt").Warn("broker unreachable")
	}
	l.Info("once")
	out.Reset()
	c.now = c.now.Add(time.Second)
	logging.LogSuppressedLineCounts(l.With("part", "x"))
	wantOutput(t, out, "<4>WARN  broker unreachable: suppressed 3 times in the last minute part=mqtt\n")
	logging.LogSuppressedLineCounts(l)
	l.Warn("broker unreachable")
	wantOutput(t, out, "<4>WARN  broker unreachable\n")
	logging.LogSuppressedLineCounts(slog.New(slog.DiscardHandler)) // a logger without a repeatLimiter is ignored
}

func TestLateSummaryNamesItsMinute(t *testing.T) {
	c := newClock()
	l, out := newLogger(t, logging.Options{Level: "info", Format: "text", WritesToJournald: true, Now: c.Now})
	for _, m := range []string{"b", "a"} {
		for range 11 {
			l.Info(m)
		}
		c.now = c.now.Add(time.Second)
	}
	out.Reset()
	c.now = c.now.Add(time.Hour)
	l.Info("c")
	wantOutput(t, out, `
<6>INFO  b: suppressed 1 times in the minute from 12:00:00
<6>INFO  a: suppressed 1 times in the minute from 12:00:01
<6>INFO  c
`)
	c.now = c.now.Add(time.Hour)
	l.Info("c")
	wantOutput(t, out, "<6>INFO  c\n")
}

// TestWindowsEndInTurn checks windows that end at different times. The end of each window must be detected separately.
func TestWindowsEndInTurn(t *testing.T) {
	c := newClock()
	l, out := newLogger(t, logging.Options{Level: "info", Format: "text", WritesToJournald: true, Now: c.Now})
	for _, m := range []string{"a", "b", "c"} {
		for range 12 {
			l.Info(m)
		}
		c.now = c.now.Add(10 * time.Second)
	}
	out.Reset()
	c.now = newClock().now.Add(60 * time.Second)
	l.Info("x")
	wantOutput(t, out, "<6>INFO  a: suppressed 2 times in the last minute\n<6>INFO  x\n")
	c.now = c.now.Add(10 * time.Second)
	l.Info("x")
	wantOutput(t, out, "<6>INFO  b: suppressed 2 times in the last minute\n<6>INFO  x\n")
	c.now = c.now.Add(10 * time.Second)
	l.Info("x")
	wantOutput(t, out, "<6>INFO  c: suppressed 2 times in the last minute\n<6>INFO  x\n")
}

func TestManyMessagesStayBounded(t *testing.T) {
	c := newClock()
	l, out := newLogger(t, logging.Options{Level: "info", Format: "text", WritesToJournald: true, Now: c.Now})
	for i := range 1024 {
		l.Info(fmt.Sprintf("message %d", i))
	}
	out.Reset()
	for range 20 {
		l.Info("one too many")
		l.Info("message 0")
	}
	if n, m := strings.Count(out.String(), "one too many"), strings.Count(out.String(), "message 0"); n != 20 ||
		m != 9 {
		t.Errorf("%d and %d lines passed, want 20 uncounted and 9 counted", n, m)
	}
}

func TestSuppressionUnderConcurrentUse(t *testing.T) {
	c := newClock()
	l, out := newLogger(t, logging.Options{Level: "info", Format: "json", Now: c.Now})
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for range 25 {
				l.With("w", w).WithGroup("g").Info("again", slog.Int("i", 1))
			}
		})
	}
	wg.Wait()
	if n := strings.Count(out.String(), "again"); n != 10 {
		t.Errorf("%d lines passed, want 10", n)
	}
	out.Reset()
	c.now = c.now.Add(time.Minute)
	l.Info("other")
	if want := `"msg":"again: suppressed 190 times in the last minute"`; !strings.Contains(out.String(), want) {
		t.Errorf("%s is not in\n%s", want, out)
	}
}
