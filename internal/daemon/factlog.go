package daemon

import (
	"log/slog"
	"math"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/mqtt"
)

// LogSubscriptionsRefused logs the subscriptions that the broker refuses, and possible causes.
func LogSubscriptionsRefused(l *slog.Logger, filters []string) {
	if len(filters) == 0 {
		l.Info("the broker accepts all subscriptions")
		return
	}
	l.Error("the broker refuses subscriptions that this program needs, and is asked again: "+mqtt.RefusalCauses,
		"topics", filters)
}

// StorageRecoveredMessage is the log message of a state folder that can be written again.
const StorageRecoveredMessage = "the state folder can be written again"

// LogStorageFailing logs that a write to the state folder fails. what is an infinitive, such as "save the model".
func LogStorageFailing(l *slog.Logger, what string, err error) {
	l.Error("cannot "+what+"; trying again until it succeeds", "err", err)
}

// LogSelfTest logs the result of a self-test, with what to change at the broker if it failed.
func LogSelfTest(l *slog.Logger, r mqtt.SelfTestOutcome) {
	if advice := r.Advice(); advice != "" {
		l.Error(advice)
		return
	}
	l.Debug("the broker carries the largest messages", "bytes", r.Bytes)
}

// ScoreAttrs returns the attributes r2 and accuracy, as far as the score has them. The score may be nil.
func ScoreAttrs(s *learner.Score) (attrs []any) {
	if s != nil && !math.IsNaN(s.R2) {
		attrs = append(attrs, "r2", Rounded(s.R2))
	}
	if s != nil && !math.IsNaN(s.Accuracy) {
		attrs = append(attrs, "accuracy", Rounded(s.Accuracy))
	}
	return attrs
}

// Rounded rounds a number for people.
func Rounded(x float64) float64 {
	if x == 0 || math.IsNaN(x) || math.IsInf(x, 0) {
		return x
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(x))))
	return math.Round(x*scale) / scale
}
