package daemon

import (
	"context"
	"log/slog"
	"slices"

	"github.com/fedmesh/fedmesh/cmd/internal/config"
	"github.com/fedmesh/fedmesh/cmd/internal/logging"
	"github.com/fedmesh/fedmesh/cmd/internal/settings"
)

// Reloader reads a daemon's configuration again, a *T. Settings that can
// take effect at once do; the log names those that cannot. A bad configuration
// changes nothing.
type Reloader[T any] struct {
	Log     *slog.Logger
	Level   *slog.LevelVar
	Running *T // what the daemon was started with
	Load    func() (*T, error)
	LogOf   func(*T) settings.Log
	// Apply, if set, makes the rest of it take effect.
	Apply func(ctx context.Context, fresh *T) error
	// Reloaded is told whether the configuration was good.
	Reloaded func(good bool)
}

// reloadable are the keys that need no restart.
var reloadable = []string{"log.level"}

// Reload reads the configuration and puts it into effect.
func (r *Reloader[T]) Reload(ctx context.Context) {
	fresh, err := r.Load()
	if err == nil && r.Apply != nil {
		err = r.Apply(ctx, fresh)
	}
	r.Reloaded(err == nil)
	if err != nil {
		for _, line := range config.Lines(err) {
			r.Log.Error("the configuration was not reloaded, and the one before stays in effect: " + line)
		}
		return
	}
	if level, err := logging.ParseLevel(r.LogOf(fresh).Level); err == nil { // as Load has checked
		r.Level.Set(level)
	}
	changed := slices.DeleteFunc(config.Changed(r.Running, fresh),
		func(key string) bool { return slices.Contains(reloadable, key) })
	if len(changed) > 0 {
		r.Log.Warn("the configuration was reloaded, but these settings take effect at the next start only",
			"keys", changed)
		return
	}
	r.Log.Info("the configuration was reloaded")
}
