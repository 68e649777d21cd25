package daemon

import (
	"context"
	"log/slog"
	"slices"

	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/internal/logging"
	"github.com/fedmesh/fedmesh/internal/settings"
)

// ConfigReloader reloads a daemon's configuration, a *T. Some settings take effect immediately. Other changed settings,
// which need a restart, are logged. An invalid configuration is ignored.
type ConfigReloader[T any] struct {
	Log           *slog.Logger
	LogLevel      *slog.LevelVar
	StartupConfig *T // configuration at the start of the daemon
	LoadConfig    func() (*T, error)
	LogSettingsOf func(*T) settings.Log
	// ApplySettings, if set, applies the settings other than the log level.
	ApplySettings func(ctx context.Context, fresh *T) error
	// IsAppliedByCommand, if set, reports whether a key takes effect through a command instead of a restart.
	IsAppliedByCommand func(key string) bool
	// OnReloaded is called after each reload. The parameter good reports whether the reload succeeded.
	OnReloaded func(good bool)
}

// reloadable lists the configuration keys that take effect without a restart.
var reloadable = []string{"log.level"}

// Reload reads the configuration and applies it.
func (r *ConfigReloader[T]) Reload(ctx context.Context) {
	fresh, err := r.LoadConfig()
	if err == nil && r.ApplySettings != nil {
		err = r.ApplySettings(ctx, fresh)
	}
	r.OnReloaded(err == nil)
	if err != nil {
		for _, line := range config.ErrorLines(err) {
			r.Log.Error("cannot reload the configuration; the previous configuration stays in effect: " + line)
		}
		return
	}
	// ParseLevel cannot fail, because LoadConfig has validated the level.
	if level, err := logging.ParseLevel(r.LogSettingsOf(fresh).Level); err == nil {
		r.LogLevel.Set(level)
	}
	changed := slices.DeleteFunc(config.ChangedKeys(r.StartupConfig, fresh), func(key string) bool {
		return slices.Contains(reloadable, key) || r.IsAppliedByCommand != nil && r.IsAppliedByCommand(key)
	})
	if len(changed) > 0 {
		r.Log.Warn("configuration reloaded, but some changed settings take effect only after a restart",
			"keys", changed)
		return
	}
	r.Log.Info("configuration reloaded")
}
