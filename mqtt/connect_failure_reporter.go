package mqtt

import (
	"fmt"
	"log/slog"
	"time"
)

// failureLogInterval is how often the same failure is logged.
const failureLogInterval = time.Minute

// connectFailureReporter logs failed attempts at one URL, one clear line each, but the same
// failure once a minute only.
type connectFailureReporter struct {
	lastFailureText   string
	lastLoggedAt      time.Time
	suppressedRepeats int
}

// report says what went wrong, and when and where the next attempt is.
func (r *connectFailureReporter) report(logger *slog.Logger, err error, delay time.Duration, where string) {
	text := err.Error()
	if text == r.lastFailureText && time.Since(r.lastLoggedAt) < failureLogInterval {
		r.suppressedRepeats++
		return
	}
	line := fmt.Sprintf("%s; next try in %v%s", text, delay.Round(100*time.Millisecond), where)
	if text == r.lastFailureText && r.suppressedRepeats > 0 {
		line += fmt.Sprintf(" (and %d more like it)", r.suppressedRepeats)
	}
	logger.Warn(line)
	r.lastFailureText, r.lastLoggedAt, r.suppressedRepeats = text, time.Now(), 0
}
