package daemon

import (
	"context"
	"log/slog"
	"slices"

	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/internal/logging"
	"github.com/fedmesh/fedmesh/internal/settings"
)

// ConfigReloader reads a daemon's configuration, a *T, again. Some settings take effect at once; the log names changed
// ones that need a restart. A bad configuration changes nothing.
type ConfigReloader[T any] struct {
	Log           *slog.Logger
	LogLevel      *slog.LevelVar
	StartupConfig *T // the configuration that the daemon was started with
	LoadConfig    func() (*T, error)
	LogSettingsOf func(*T) settings.Log
	// Apply, if set, puts settings other than the log level into effect.
	ApplySettings func(ctx context.Context, fresh *T) error
	// IsAppliedByCommand, if set, reports whether a command, and no start, puts a key into effect.
	IsAppliedByCommand func(key string) bool
	// OnReloaded is called with whether the reload succeeded.
	OnReloaded func(good bool)
}

// reloadable are the keys that need no restart.
var reloadable = []string{"log.level"}

// Reload reads the configuration and puts it into effect.
func (r *ConfigReloader[T]) Reload(ctx context.Context) {
	fresh, err := r.LoadConfig()
	if err == nil && r.ApplySettings != nil {
		err = r.ApplySettings(ctx, fresh)
	}
	r.OnReloaded(err == nil)
	if err != nil {
		for _, line := range config.ErrorLines(err) {
			r.Log.Error("the configuration was not reloaded; the previous one stays in effect: " + line)
		}
		return
	}
	if level, err := logging.ParseLevel(r.LogSettingsOf(fresh).Level); err == nil { // as Load has checked
		r.LogLevel.Set(level)
	}
	changed := slices.DeleteFunc(config.ChangedKeys(r.StartupConfig, fresh), func(key string) bool {
		return slices.Contains(reloadable, key) || r.IsAppliedByCommand != nil && r.IsAppliedByCommand(key)
	})
	if len(changed) > 0 {
		r.Log.Warn("the configuration was reloaded, but these settings need a restart",
			"keys", changed)
		return
	}
	r.Log.Info("the configuration was reloaded")
}
