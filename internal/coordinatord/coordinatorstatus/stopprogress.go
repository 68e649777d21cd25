package coordinatorstatus

import (
	"fmt"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/internal/status"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
)

// stopProgress is how far a run has come to its end by round.stop.
type stopProgress struct {
	CountingStartedAt time.Time `json:"since"`             // the time counts from it
	MaxRunSeconds     float64   `json:"seconds,omitempty"` // that the run may take; 0 = no limit
	UsedBytes         uint64    `json:"bytes"`             // carried since then
	MaxBytes          uint64    `json:"most_bytes,omitempty"`
	// The targets; 0 = none.
	TargetRisk     float64 `json:"target_risk,omitempty"`
	TargetR2       float64 `json:"target_r2,omitempty"`
	TargetAccuracy float64 `json:"target_accuracy,omitempty"`
	// The risk that is judged; nil before the first.
	JudgedRisk                     *float64 `json:"risk,omitempty"`
	BestRisk                       *float64 `json:"best_risk,omitempty"`
	BestModelVersion               uint64   `json:"best_version,omitempty"`
	AggregationsWithoutImprovement int      `json:"without_improvement"` // aggregations
	PatienceAggregations           int      `json:"patience,omitempty"`
}

func newStopProgress(f round.StopProgressReported) *stopProgress {
	s := &stopProgress{
		CountingStartedAt: f.TimeLimitStartedAt, MaxRunSeconds: f.StopRules.TimeLimit.Seconds(),
		UsedBytes:  f.TransferredBytes,
		MaxBytes:   uint64(f.StopRules.ByteLimit),
		TargetRisk: f.StopRules.TargetRisk, TargetR2: f.StopRules.TargetR2, TargetAccuracy: f.StopRules.TargetAccuracy,
		AggregationsWithoutImprovement: f.AggregationsSinceBest, PatienceAggregations: f.StopRules.Patience,
	}
	if f.JudgedRiskCount > 0 {
		s.JudgedRisk, s.BestRisk, s.BestModelVersion = observe.FiniteOrNil(f.LatestRisk),
			observe.FiniteOrNil(f.BestRisk),
			uint64(f.BestVersion)
	}
	return s
}

// draw lists what ends the run: whatever comes first.
func (s *stopProgress) drawStopProgress(c *coordinatorStatus) string {
	var all []string
	add := func(on bool, format string, args ...any) {
		if on {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	target := func(name string, want float64, is *float64, sign string) {
		now := "not known yet"
		if is != nil {
			now = fmt.Sprintf("now %.4g", *is)
		}
		add(want > 0, "%s %s %.4g (%s)", name, sign, want, now)
	}
	target("risk", s.TargetRisk, s.JudgedRisk, "≤")
	target("R²", s.TargetR2, c.HeldOutR2, "≥")
	target("accuracy", s.TargetAccuracy, c.HeldOutAccuracy, "≥")
	best := ""
	if s.BestRisk != nil {
		best = fmt.Sprintf(" (best risk %.4g, version %d)", *s.BestRisk, s.BestModelVersion)
	}
	add(s.PatienceAggregations > 0, "aggregations without improvement %d of %d%s", s.AggregationsWithoutImprovement,
		s.PatienceAggregations,
		best)
	add(s.MaxRunSeconds > 0, "time %s of %s", status.FormatDuration(c.GeneratedAt.Sub(s.CountingStartedAt)),
		status.FormatSeconds(s.MaxRunSeconds))
	add(s.MaxBytes > 0, "data %.1f of %.1f MB", float64(s.UsedBytes)/1e6, float64(s.MaxBytes)/1e6)
	return strings.Join(all, "; ")
}
