package logging

import (
	"context"
	"log/slog"
	"sync"
)

// LastWarning is a slog.Handler that keeps the last warning, or error. Its zero value has none.
type LastWarning struct {
	mu   sync.Mutex
	text string
}

// Handle implements slog.Handler.
func (l *LastWarning) Handle(_ context.Context, rec slog.Record) error {
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
func (*LastWarning) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// WithAttrs implements slog.Handler: the text has no attributes but the error.
func (l *LastWarning) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup implements slog.Handler.
func (l *LastWarning) WithGroup(string) slog.Handler { return l }

// Text returns the last warning; otherwise if there was none.
func (l *LastWarning) Text(otherwise string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.text == "" {
		return otherwise
	}
	return l.text
}
