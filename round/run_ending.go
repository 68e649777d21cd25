package round

import (
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/stop"
	"github.com/fedmesh/fedmesh/wire"
)

// runStopReason returns why the run is over; empty if it is not. A statistics round that is due is held first: without
// it agents would not get the model.
func (c *Coordinator) runStopReason(now time.Time) stop.Reason {
	p := &c.rec.Plan
	switch {
	case c.cfg.Course == CourseStop:
		return stop.Asked
	case c.cfg.MaxAggregations > 0 && p.Version >= wire.ModelVersion(c.cfg.MaxAggregations):
		return stop.Rounds
	case p.Kind == wire.KindStatistics:
		return ""
	}
	return c.rec.Stop.StopReason(&c.cfg.Stop, now)
}

// runEndsAt is when the time of the run is used up, if nothing else brings it to an end; zero if nobody waits for it. A
// round under way goes on to its own end.
func (c *Coordinator) runEndsAt() time.Time {
	if !c.isBetweenRounds() || c.rec.Plan.Kind == wire.KindStatistics {
		return time.Time{}
	}
	return c.rec.Stop.EndsAt(&c.cfg.Stop)
}

// isBetweenRounds reports whether the machine has begun, no round is under way, and the run goes on.
func (c *Coordinator) isBetweenRounds() bool {
	return !c.phaseEnteredAt.IsZero() && (c.isInPhase(CoordinatorIdle) || c.isInPhase(CoordinatorGathering))
}

// noteMeasurements takes what was measured of a new model, before its plan is the present one.
func (c *Coordinator) noteMeasurements(e *Aggregated) {
	s := &c.rec.Stop
	switch {
	case !c.cfg.Stop.On():
		return
	case c.rec.Plan.Kind == wire.KindStatistics:
		s.Rescaled = true
		return
	}
	m := &e.Measurements
	s.RecordModel(&c.cfg.Stop, e.NextPlan.Version, stop.Measurements{Risk: m.HeldOut, R2: m.R2, Accuracy: m.Accuracy,
		MedianAgentRisk: m.Median, AgentRisks: e.AgentRisks})
	c.report(StopProgressReported{c.cfg.Stop, *s})
}

// countTransferredBytes counts what a participant has fetched, and sent, to come from one state to another: the model
// once, and its update once.
func (c *Coordinator) countTransferredBytes(from, to participantState) {
	if !c.cfg.Stop.On() {
		return
	}
	p := &c.rec.Plan
	if from == peerInvited && (to == peerJoined || to == peerAccepted) {
		c.rec.Stop.Bytes += uint64(p.trainingBase().Length)
	}
	if to == peerAccepted {
		c.rec.Stop.Bytes += uint64(p.Bytes)
	}
}

// finish ends the run. The history's line of its last round says why; it is written again if the run ends later.
func (c *Coordinator) finish(now time.Time, why stop.Reason) {
	late := c.rec.Ended != why && c.roundAwaitingDiscard == 0 && c.rec.Last != nil
	c.rec.Ended, c.retryAt, c.mixing.pendingParticipants = why, time.Time{}, nil
	c.enter(now, CoordinatorFinished)
	c.saveJournalRecord(now)
	if late {
		c.emit(WriteHistory{c.rec.Run, *c.rec.Last, why})
	}
	c.announceRecord(now, wire.PhaseFinished)
	c.report(RunFinished{c.rec.Plan.Version, why})
}

var (
	runRisk = observe.OptionalGauge("run_risk",
		"The risk that round.stop judged last: on held-out data, else the mean of the "+
			"last 5 medians of what participants told.")
	bestRunRisk = observe.OptionalGauge("run_best_risk",
		"The lowest of these risks that counted as an improvement.")
	bestRunVersion = observe.OptionalGauge("run_best_version",
		"Version of the model whose aggregation had it.")
	aggregationsWithoutImprovement = observe.OptionalGauge("run_aggregations_without_improvement",
		"Aggregations since then; round.stop.patience bounds them.")
	runBytes = observe.OptionalGauge("run_bytes",
		"Bytes of the models that participants fetched and of the updates that were "+
			"accepted, since round.stop counts them.")
)

// StopProgressReported: the progress of the run toward its stop rules, at a start and after each aggregation.
type StopProgressReported struct {
	StopRules stop.Config
	stop.State
}

// Describe implements observe.Event.
func (e StopProgressReported) Describe(d *observe.Description) {
	d.Set(runBytes, float64(e.Bytes))
	if e.Judged > 0 {
		d.Set(runRisk, e.Risk)
		d.Set(bestRunRisk, e.Best)
		d.Set(bestRunVersion, float64(e.BestAt))
		d.Set(aggregationsWithoutImprovement, float64(e.Without))
	}
}

var (
	runFinished = observe.Gauge("run_finished",
		"Whether all rounds of the run are done (1) or not (0).")
	runEndReason = observe.GaugeByLabel("run_ended",
		"Why the run is finished: 1 for the reason, 0 for all others, and for all while "+
			"it goes on.", "reason", observe.Strings(stop.Reasons()))
)

// RunFinished: the run is over.
type RunFinished struct {
	Version wire.ModelVersion
	Reason  stop.Reason
}

// Describe implements observe.Event.
func (e RunFinished) Describe(d *observe.Description) {
	d.Set(runFinished, 1)
	d.Select(runEndReason, string(e.Reason))
	d.Set(ModelVersion, float64(e.Version))
	d.Log(observe.Info, "run finished", "version", e.Version, "reason", e.Reason,
		"to_continue", "coordinator task set KEY=VALUE")
	d.Show(observe.Activity, fmt.Sprintf("the run is finished (%s), with version %d", e.Reason, e.Version))
}
