// Package logging creates a daemon's [slog.Logger]. It writes one line per record, as text or JSON, with journald's
// priorities under systemd. It limits repeated messages, so that a broker outage of a week does not fill the disk.
//
// Line breaks, terminal escapes and other control characters in messages and attributes are escaped, so that a peer
// cannot forge a log line with its name.
package logging

import (
	"fmt"
	"io"
	"log/slog"
	"time"
)

// Options configure a logger.
type Options struct {
	// Level is the minimum level: "debug", "info", "warn" or "error".
	Level string
	// AdjustableLevel, if not nil, is set to Level and then controls the log level, so callers can change the level
	// later.
	AdjustableLevel *slog.LevelVar
	// Format is "text" or "json".
	Format string
	// WritesToJournald is true if the output goes to journald (see IsJournalStream). Each line then begins with its
	// priority, such as "<4>", and contains no time, because journald adds the time.
	WritesToJournald bool
	// Recent, if not nil, keeps the newest records, whatever the log level is.
	Recent *RecentRecords
	// Now is the clock for limiting repeated messages; nil means time.Now.
	Now func() time.Time
}

// New returns a logger that writes to w, with one Write call per line. The logger is safe for concurrent use. If an
// option is invalid, New returns an error with the name of the option and its possible values.
func New(w io.Writer, o Options) (*slog.Logger, error) {
	least, err := ParseLevel(o.Level)
	if err != nil {
		return nil, err
	}
	level := o.AdjustableLevel
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
	if o.WritesToJournald {
		handler = newJournalHandler(w, build)
	}
	if o.Recent != nil {
		handler = slog.NewMultiHandler(handler, recentHandler{recent: o.Recent})
	}
	return slog.New(newLimiter(handler, o.Now)), nil
}

// ParseLevel returns the log level with the given name. The error lists the valid names.
func ParseLevel(name string) (slog.Level, error) {
	level, ok := map[string]slog.Level{
		"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
	}[name]
	if !ok {
		return 0, fmt.Errorf("unknown log level %q; the levels are debug, info, warn and error", name)
	}
	return level, nil
}
