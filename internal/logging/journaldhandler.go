package logging

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"time"
)

// journalHandler wraps a slog.Handler for journald. It writes the syslog priority (see sd-daemon(3)) before each line
// and omits the time.
type journalHandler struct {
	nextHandler slog.Handler
	lineWriter  *priorityWriter
}

// priorityWriter writes the priority of a record before the formatted line. A logging call holds the lock from setting
// the priority until the line is written.
type priorityWriter struct {
	mu       sync.Mutex
	priority string
	w        io.Writer
}

func (p *priorityWriter) Write(line []byte) (int, error) {
	if _, err := p.w.Write(append([]byte(p.priority), line...)); err != nil {
		return 0, err
	}
	return len(line), nil
}

func newJournalHandler(w io.Writer, build func(io.Writer) slog.Handler) *journalHandler {
	out := &priorityWriter{w: w}
	return &journalHandler{nextHandler: build(out), lineWriter: out}
}

func (h *journalHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return h.nextHandler.Enabled(ctx, l)
}

func (h *journalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &journalHandler{h.nextHandler.WithAttrs(attrs), h.lineWriter}
}

func (h *journalHandler) WithGroup(name string) slog.Handler {
	return &journalHandler{h.nextHandler.WithGroup(name), h.lineWriter}
}

func (h *journalHandler) Handle(ctx context.Context, r slog.Record) error {
	h.lineWriter.mu.Lock()
	defer h.lineWriter.mu.Unlock()
	h.lineWriter.priority = syslogPriority(r.Level)
	r.Time = time.Time{} // handlers omit the zero time
	return h.nextHandler.Handle(ctx, r)
}

// syslogPriority returns the syslog priority of a log level as a prefix, such as "<4>" for a warning.
func syslogPriority(l slog.Level) string {
	switch {
	case l >= slog.LevelError:
		return "<3>"
	case l >= slog.LevelWarn:
		return "<4>"
	case l >= slog.LevelInfo:
		return "<6>"
	default:
		return "<7>"
	}
}
