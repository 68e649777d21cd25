package daemon

import (
	"log/slog"
	"math"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/mqtt"
)

// subscriptionsRefused logs the subscriptions that the broker refuses, and possible causes.
func subscriptionsRefused(l *slog.Logger, filters []string) {
	if len(filters) == 0 {
		l.Info("the broker accepts all subscriptions")
		return
	}
	l.Error("the broker refuses subscriptions that this program needs, and is asked again: "+mqtt.RefusalCauses,
		"topics", filters)
}

const storageMended = "the state folder can be written again"

func storageFailing(l *slog.Logger, what string, err error) {
	l.Error("cannot "+what+"; trying again until it succeeds", "err", err)
}

// selfTested logs the result of a self-test, with what to change at the broker if it failed.
func selfTested(l *slog.Logger, r mqtt.SelfTested) {
	if advice := r.Advice(); advice != "" {
		l.Error(advice)
		return
	}
	l.Debug("the broker carries the largest messages", "bytes", r.Bytes)
}

// metricsOf returns the attributes r2 and accuracy, as far as the score has them. The score may be nil.
func metricsOf(s *learner.Score) (attrs []any) {
	if s != nil && !math.IsNaN(s.R2) {
		attrs = append(attrs, "r2", short(s.R2))
	}
	if s != nil && !math.IsNaN(s.Accuracy) {
		attrs = append(attrs, "accuracy", short(s.Accuracy))
	}
	return attrs
}

// short rounds a number for people.
func short(x float64) float64 {
	if x == 0 || math.IsNaN(x) || math.IsInf(x, 0) {
		return x
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(x))))
	return math.Round(x*scale) / scale
}
