package logging

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"
)

// textHandler writes human-readable lines:
//
//	12:04:05 INFO  round 12 closed accepted=6 took=1.2s
type textHandler struct {
	level      slog.Leveler
	lineWriter *lockedWriter
	attrs      string // formatted attributes from WithAttrs, each preceded by a space
	keyPrefix  string // prefix of attribute keys from WithGroup, such as "broker.tls."
}

// lockedWriter serialises the writes of all handlers that share it.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func newTextHandler(w io.Writer, level slog.Leveler) *textHandler {
	return &textHandler{level: level, lineWriter: &lockedWriter{w: w}}
}

func (h *textHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level.Level() }

func (h *textHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *h
	var b strings.Builder
	appendAttrs(&b, h.keyPrefix, attrs)
	with.attrs += b.String()
	return &with
}

func (h *textHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	with := *h
	with.keyPrefix += name + "."
	return &with
}

func (h *textHandler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	if !r.Time.IsZero() {
		b.WriteString(r.Time.Format(time.TimeOnly) + " ")
	}
	b.WriteString(levelName(r.Level) + " " + escapeUnprintable(r.Message) + h.attrs)
	r.Attrs(func(a slog.Attr) bool {
		appendAttrs(&b, h.keyPrefix, []slog.Attr{a})
		return true
	})
	b.WriteByte('\n')
	h.lineWriter.mu.Lock()
	defer h.lineWriter.mu.Unlock()
	_, err := io.WriteString(h.lineWriter.w, b.String())
	return err
}

// levelName returns the name of a log level, padded with spaces to five columns.
func levelName(l slog.Level) string {
	name := l.String()
	return name + strings.Repeat(" ", max(0, 5-len(name)))
}

// appendAttrs appends attributes as " key=value", and group members as " group.key=value".
func appendAttrs(b *strings.Builder, group string, attrs []slog.Attr) {
	for _, a := range attrs {
		a.Value = a.Value.Resolve()
		switch {
		case a.Equal(slog.Attr{}):
		case a.Value.Kind() != slog.KindGroup:
			b.WriteString(" " + quoteIfNeeded(group+a.Key) + "=" + quoteIfNeeded(formatValue(a.Value)))
		case a.Key == "":
			appendAttrs(b, group, a.Value.Group())
		default:
			appendAttrs(b, group+a.Key+".", a.Value.Group())
		}
	}
}

func formatValue(v slog.Value) string {
	switch v.Kind() {
	case slog.KindDuration:
		return formatDuration(v.Duration())
	case slog.KindTime:
		return v.Time().Format(time.RFC3339)
	default:
		// Sprint handles a nil pointer in the interface, on which a direct call of Error or String would panic
		return fmt.Sprint(v.Any())
	}
}

// formatDuration formats a duration with three or four significant digits, for example 1.2s for 1.203948571s.
func formatDuration(d time.Duration) string {
	switch size := d.Abs(); {
	case size >= time.Minute:
		return d.Round(time.Second).String()
	case size >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case size >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	default:
		return d.String()
	}
}

// quoteIfNeeded quotes a text unless it is a single printable word.
func quoteIfNeeded(s string) string {
	if s == "" || strings.ContainsFunc(s,
		func(r rune) bool { return r == '"' || r == '=' || r == ' ' || isUnprintable(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// escapeUnprintable replaces only the unprintable characters of s with Go escapes.
func escapeUnprintable(s string) string {
	if !strings.ContainsFunc(s, isUnprintable) {
		return s
	}
	var b strings.Builder
	for s != "" {
		_, size := utf8.DecodeRuneInString(s)
		if one := s[:size]; strings.ContainsFunc(one, isUnprintable) {
			quoted := strconv.Quote(one)
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteString(one)
		}
		s = s[size:]
	}
	return b.String()
}

// isUnprintable reports whether r is unprintable or is U+FFFD, the replacement for invalid UTF-8.
func isUnprintable(r rune) bool { return r == unicode.ReplacementChar || !unicode.IsPrint(r) }
