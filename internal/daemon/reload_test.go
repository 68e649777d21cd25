package daemon

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/internal/settings"
)

// TestReload reloads several configurations in sequence.
func TestReload(t *testing.T) {
	running := settings.DefaultAgent()
	var log bytes.Buffer
	var fresh settings.Agent
	var bad, refused error
	var good []bool
	var level slog.LevelVar
	r := ConfigReloader[settings.Agent]{
		Log: slog.New(slog.NewTextHandler(&log, nil)), LogLevel: &level, StartupConfig: &running,
		LoadConfig:         func() (*settings.Agent, error) { return &fresh, bad },
		LogSettingsOf:      func(s *settings.Agent) settings.Log { return s.Log },
		ApplySettings:      func(context.Context, *settings.Agent) error { return refused },
		IsAppliedByCommand: func(key string) bool { return key == "data.csv" },
		OnReloaded:         func(ok bool) { good = append(good, ok) },
	}
	for _, tt := range []struct {
		change func()
		good   bool
		level  slog.Level
		says   string
	}{
		{func() { fresh.Log.Level = "debug" }, true, slog.LevelDebug,
			`level=INFO msg="configuration reloaded"`},
		{
			func() {
				bad = &config.Error{Origin: "a.yaml", Line: 3, Column: 1, Problem: "unknown key", Excerpt: "x: 1"}
			}, false, slog.LevelDebug,
			`level=ERROR msg="cannot reload the configuration; the previous configuration stays in effect: ` +
				`a.yaml:3:1: unknown key"`,
		},
		{func() { bad, refused = nil, errors.New("no") }, false, slog.LevelDebug, "stays in effect: no"},
		{
			func() {
				refused, fresh.Log.Level, fresh.Broker.URLs, fresh.ID = nil,
					"warn", config.OneOrMore{"tcp://other:1883"}, "roof-2"
				fresh.Data.CSVPath = "applied.csv"
			}, true, slog.LevelWarn,
			`level=WARN msg="configuration reloaded, but some changed settings take effect only after a restart" ` +
				`keys="[id broker.url]"`,
		},
	} {
		fresh = running
		tt.change()
		good = nil
		log.Reset()
		r.Reload(t.Context())
		if len(good) != 1 || good[0] != tt.good || level.Level() != tt.level ||
			!strings.Contains(log.String(), tt.says) {
			t.Errorf("good: %v, want %v; level %v, want %v; the log is\n%swant\n%s", good, tt.good, level.Level(),
				tt.level, &log, tt.says)
		}
	}
}
