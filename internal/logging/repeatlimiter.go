package logging

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sort"
	"sync"
	"time"
)

const (
	maxLinesPerWindow = 10 // maximum number of lines per message and minute
	repeatWindow      = time.Minute
	// maxMessages is the maximum number of different messages that are counted, to limit the memory. Messages beyond
	// this limit are never suppressed. Daemons have far fewer messages.
	maxMessages = 1024
)

// repeatLimiter is a slog.Handler that limits repeated messages. It passes at most maxLinesPerWindow lines per minute
// with the same level and message, regardless of their attributes. It has no goroutine and no timer: when any line is
// logged after the minute, it also logs the number of suppressed lines.
type repeatLimiter struct {
	nextHandler slog.Handler
	*repeatCounter
}

// repeatCounter is the state shared by a limiter and the loggers derived from it by With.
type repeatCounter struct {
	now             func() time.Time
	mu              sync.Mutex
	windowByMessage map[messageKey]*messageWindow
	nextWindowEnd   time.Time // earliest end time of the windows in this counter
}

type messageKey struct {
	level slog.Level
	text  string
}

// messageWindow counts the lines of one message in one window.
type messageWindow struct {
	messageKey
	start               time.Time
	passedLineCount     int
	suppressedLineCount int
	// lastSuppressedHandler is the handler of the last suppressed line. The number of suppressed lines is logged with
	// the attributes of this handler, because they identify the part of the daemon that logged the lines.
	lastSuppressedHandler slog.Handler
}

func newLimiter(next slog.Handler, now func() time.Time) *repeatLimiter {
	return &repeatLimiter{next, &repeatCounter{now: now, windowByMessage: map[messageKey]*messageWindow{}}}
}

func (h *repeatLimiter) Enabled(ctx context.Context, l slog.Level) bool {
	return h.nextHandler.Enabled(ctx, l)
}

func (h *repeatLimiter) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &repeatLimiter{h.nextHandler.WithAttrs(attrs), h.repeatCounter}
}

func (h *repeatLimiter) WithGroup(name string) slog.Handler {
	return &repeatLimiter{h.nextHandler.WithGroup(name), h.repeatCounter}
}

func (h *repeatLimiter) Handle(ctx context.Context, r slog.Record) error {
	now := h.now()
	ended, pass := h.countLine(messageKey{r.Level, r.Message}, now, h.nextHandler)
	if err := logSuppressedCounts(ctx, ended, now, r.Time); err != nil || !pass {
		return err
	}
	return h.nextHandler.Handle(ctx, r)
}

// logSuppressedCounts logs the number of suppressed lines in windows that have ended.
func logSuppressedCounts(ctx context.Context, ended []*messageWindow, now, at time.Time) error {
	for _, e := range ended {
		when := "in the last minute"
		if now.Sub(e.start) >= 2*repeatWindow {
			when = "in the minute from " + e.start.Format(time.TimeOnly)
		}
		summary := slog.NewRecord(at, e.level, fmt.Sprintf("%s: suppressed %d times %s", e.text, e.suppressedLineCount,
			when), 0)
		if err := e.lastSuppressedHandler.Handle(ctx, summary); err != nil {
			return err
		}
	}
	return nil
}

// LogSuppressedLineCounts logs the numbers of suppressed lines that have not been logged yet. Programs call it before
// they exit, with a logger that New returned.
func LogSuppressedLineCounts(log *slog.Logger) {
	h, ok := log.Handler().(*repeatLimiter)
	if !ok {
		return
	}
	h.mu.Lock()
	now := h.now()
	// removes all windows, because every window has ended at that time
	ended := h.removeEndedWindows(now.Add(repeatWindow))
	h.mu.Unlock()
	_ = logSuppressedCounts(context.Background(), ended, now, now) // ignore the error, because it could not be logged
}

// countLine counts a line and reports whether the line may be logged (pass). It also returns the ended windows that
// have suppressed lines, in the order of their start.
func (s *repeatCounter) countLine(m messageKey, now time.Time, next slog.Handler) (ended []*messageWindow, pass bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !now.Before(s.nextWindowEnd) {
		ended = s.removeEndedWindows(now)
	}
	w := s.windowByMessage[m]
	if w == nil {
		if len(s.windowByMessage) >= maxMessages {
			return ended, true
		}
		w = &messageWindow{messageKey: m, start: now}
		s.windowByMessage[m] = w
		if len(s.windowByMessage) == 1 {
			s.nextWindowEnd = now.Add(repeatWindow)
		}
	}
	if w.passedLineCount < maxLinesPerWindow {
		w.passedLineCount++
		return ended, true
	}
	w.suppressedLineCount++
	w.lastSuppressedHandler = next
	return ended, false
}

// removeEndedWindows removes the windows that have ended. removeEndedWindows returns the removed windows that have
// suppressed lines.
func (s *repeatCounter) removeEndedWindows(now time.Time) (ended []*messageWindow) {
	s.nextWindowEnd = now.Add(repeatWindow)
	for m, w := range s.windowByMessage {
		switch end := w.start.Add(repeatWindow); {
		case end.After(now):
			if end.Before(s.nextWindowEnd) {
				s.nextWindowEnd = end
			}
		default:
			delete(s.windowByMessage, m)
			if w.suppressedLineCount > 0 {
				ended = append(ended, w)
			}
		}
	}
	sort.Slice(ended, func(i, j int) bool {
		a, b := ended[i], ended[j]
		return cmp.Or(a.start.Compare(b.start), cmp.Compare(a.level, b.level), cmp.Compare(a.text, b.text)) < 0
	})
	return ended
}
