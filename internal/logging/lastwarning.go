package logging

import (
	"context"
	"log/slog"
	"sync"
)

// LastWarningHandler is a slog.Handler that keeps the last warning or error. The zero value is ready for use.
type LastWarningHandler struct {
	mu   sync.Mutex
	text string
}

// Handle implements slog.Handler.
func (l *LastWarningHandler) Handle(_ context.Context, rec slog.Record) error {
	text := rec.Message
	rec.Attrs(func(a slog.Attr) bool {
		if a.Key == "err" {
			text += ": " + a.Value.String()
		}
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = text
	return nil
}

// Enabled implements slog.Handler.
func (*LastWarningHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn
}

// WithAttrs implements slog.Handler. It ignores the attributes, because the kept text contains no attribute except the
// error.
func (l *LastWarningHandler) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup implements slog.Handler.
func (l *LastWarningHandler) WithGroup(string) slog.Handler { return l }

// LastTextOr returns the last warning or error, or the given text if there was none.
func (l *LastWarningHandler) LastTextOr(otherwise string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.text == "" {
		return otherwise
	}
	return l.text
}
