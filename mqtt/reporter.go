package mqtt

import (
	"fmt"
	"log/slog"
	"time"
)

// reportInterval is how often the same failure is logged.
const reportInterval = time.Minute

// reporter logs failed attempts, one clear line each, but the same failure
// once a minute only.
type reporter struct {
	logger   *slog.Logger
	last     string
	at       time.Time
	unlogged int
}

func (r *reporter) failure(err error, delay time.Duration) {
	text := err.Error()
	if text == r.last && time.Since(r.at) < reportInterval {
		r.unlogged++
		return
	}
	line := fmt.Sprintf("%s; next try in %v", text, delay.Round(100*time.Millisecond))
	if text == r.last && r.unlogged > 0 {
		line += fmt.Sprintf(" (and %d more like it)", r.unlogged)
	}
	r.logger.Warn(line)
	r.last, r.at, r.unlogged = text, time.Now(), 0
}
