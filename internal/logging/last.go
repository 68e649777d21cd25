package logging

import (
	"context"
	"log/slog"
	"sync"
)

// Last is a slog.Handler that keeps the last warning, or error. Its zero value has none.
type Last struct {
	mu   sync.Mutex
	text string
}

// Handle implements slog.Handler.
func (l *Last) Handle(_ context.Context, rec slog.Record) error {
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
func (*Last) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// WithAttrs implements slog.Handler: the text has no attributes but the error.
func (l *Last) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup implements slog.Handler.
func (l *Last) WithGroup(string) slog.Handler { return l }

// Text returns the last warning; otherwise if there was none.
func (l *Last) Text(otherwise string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.text == "" {
		return otherwise
	}
	return l.text
}
