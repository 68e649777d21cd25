package mqtt

import (
	"fmt"
	"log/slog"
	"time"
)

// failureLogInterval is the minimum time between log lines about the same failure.
const failureLogInterval = time.Minute

// connectFailureReporter logs failed connection attempts to one URL. It logs the same failure at most once a minute.
type connectFailureReporter struct {
	lastFailureText   string
	lastLoggedAt      time.Time
	suppressedRepeats int
}

// report logs a failed connection attempt. The log line contains the delay and the URL of the next attempt.
func (r *connectFailureReporter) report(logger *slog.Logger, err error, delay time.Duration, where string) {
	text := err.Error()
	if text == r.lastFailureText && time.Since(r.lastLoggedAt) < failureLogInterval {
		r.suppressedRepeats++
		return
	}
	line := fmt.Sprintf("%s; retry in %v%s", text, delay.Round(100*time.Millisecond), where)
	if text == r.lastFailureText && r.suppressedRepeats > 0 {
		line += fmt.Sprintf(" (%d repeats not logged)", r.suppressedRepeats)
	}
	logger.Warn(line)
	r.lastFailureText, r.lastLoggedAt, r.suppressedRepeats = text, time.Now(), 0
}
