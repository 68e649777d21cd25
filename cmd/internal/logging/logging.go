// Package logging builds a daemon's [slog.Logger]: one line a record, for people ("text") or for machines ("json"),
// with journald's priorities under systemd, and with a brake on repeats, so that a broker that is away for a week
// does not fill the disk with one sentence.
//
// One record stays one line: line breaks, terminal escapes and other control characters in
// messages and attributes are escaped, so that no peer can forge an entry by its name.
package logging

import (
	"fmt"
	"io"
	"log/slog"
	"time"
)

// Options say how to log.
type Options struct {
	// Level is the least level that is logged: "debug", "info", "warn" or "error".
	Level string
	// Changing, if set, is given that level and followed from then on.
	Changing *slog.LevelVar
	// Format is "text" or "json".
	Format string
	// Journal is set if the lines go to journald (ToJournal): each begins with its priority, as in "<4>", and has no
	// time, since journald adds it.
	Journal bool
	// Now is the clock by which repeats are counted; nil means time.Now.
	Now func() time.Time
}

// New returns a logger that writes to w, one Write a line. The logger may be used by many goroutines. The error
// says which option is wrong and which values it has.
func New(w io.Writer, o Options) (*slog.Logger, error) {
	least, err := ParseLevel(o.Level)
	if err != nil {
		return nil, err
	}
	level := o.Changing
	if level == nil {
		level = new(slog.LevelVar)
	}
	level.Set(least)
	build, ok := map[string]func(io.Writer) slog.Handler{
		"text": func(w io.Writer) slog.Handler { return newTextHandler(w, level) },
		"json": func(w io.Writer) slog.Handler {
			return slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level})
		},
	}[o.Format]
	if !ok {
		return nil, fmt.Errorf("unknown log format %q; the formats are text and json", o.Format)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	handler := build(w)
	if o.Journal {
		handler = newJournalHandler(w, build)
	}
	return slog.New(newLimiter(handler, o.Now)), nil
}

// ParseLevel returns the level of that name; the error says which there are.
func ParseLevel(name string) (slog.Level, error) {
	level, ok := map[string]slog.Level{
		"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
	}[name]
	if !ok {
		return 0, fmt.Errorf("unknown log level %q; the levels are debug, info, warn and error", name)
	}
	return level, nil
}
