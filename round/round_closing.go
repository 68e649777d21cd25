package round

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/wire"
)

// minDrawsToClose returns the minimum number of accepted draws for closing the round: the quorum, or all draws if these
// are fewer. A statistics round draws each agent once, so it may have fewer draws than training with replacement.
func (c *CoordinatorMachine) minDrawsToClose(all int) int { return min(c.cfg.Quorum, all) }

// closeRoundIfReady closes the round if its target is reached or no more updates can arrive. It abandons the round if
// the quorum can no longer be reached.
func (c *CoordinatorMachine) closeRoundIfReady(now time.Time) {
	accepted, possible, all := c.countAcceptedAndPossibleDraws()
	target := all
	if c.record.Plan.Kind == wire.KindTraining {
		// Do not count participants that were drawn in addition to the configured number.
		target = min(all, c.cfg.Participants)
	}
	ready := accepted >= target || possible == 0 && accepted >= c.minDrawsToClose(all)
	if !ready {
		c.mixing.edgeReportsDeadline = time.Time{} // another participant has been drawn meanwhile
	}
	switch {
	case ready && !c.awaitsEdgeReports(now):
		c.closeRound(now)
	case ready:
	case accepted+possible < c.minDrawsToClose(all) && c.mostParticipantsDiverged():
		c.closeRound(now)
	// Wait for the remaining answers, which decide whether most participants diverged.
	case accepted+possible < c.minDrawsToClose(all) && c.mostParticipantsMayDiverge():
	case accepted+possible < c.minDrawsToClose(all):
		c.abandonRound(now, AbandonQuorumMissed, nil)
	case accepted >= c.minDrawsToClose(all):
		c.bringDeadlineForward(now, possible)
	}
}

// bringDeadlineForward shortens a round that waits only for agents that failed in an earlier round and have not sent an
// update since. The round then ends after 1 + s/8 times the duration so far (at least 1 s), where s is the number of
// draws from which the agents were excluded. So silent agents hardly delay rounds, while a slow agent gets more time at
// each attempt, up to the full deadline.
func (c *CoordinatorMachine) bringDeadlineForward(now time.Time, possible int) {
	draws, satOut := c.awaitedSidelinedDraws()
	if draws < possible || !c.deadlinePause.storageFailingSince.IsZero() {
		return
	}
	most := float64(max(now.Sub(c.announcement.roundAnnouncedAt), time.Second)) * (1 + satOut/8)
	at := c.announcement.roundAnnouncedAt.Add(time.Duration(most))
	if most < float64(c.cfg.RoundTimeout) && at.Before(c.phaseDeadline) {
		c.phaseDeadline = at
	}
}

// handleRoundDeadline closes the round if enough updates were accepted. Otherwise it abandons the round, or waits if
// the announcement is not published or the host cannot write to disk.
func (c *CoordinatorMachine) handleRoundDeadline(now time.Time) {
	c.deadlinePassed = true
	// Do not blame agents for missing updates if the broker or the disk was unavailable during the round.
	if c.linkUp && !c.announcement.publishedAt.IsZero() && !c.deadlinePause.roundInterrupted &&
		c.deadlinePause.storageFailingSince.IsZero() {
		c.sidelineAgents(c.missingParticipants(), SidelinedSilent)
	}
	switch accepted, _, all := c.countAcceptedAndPossibleDraws(); {
	case accepted >= c.minDrawsToClose(all), c.mostParticipantsDiverged():
		c.closeRound(now)
	case c.announcement.publishedAt.IsZero(): // no agent could join, so the round's time begins at the publication
		c.deadlinePassed, c.phaseDeadline = false, now.Add(c.cfg.RoundTimeout)
	case c.deadlinePause.storageFailingSince.IsZero():
		c.abandonRound(now, AbandonQuorumMissed, nil)
	default: // Missing updates may have been sent but not stored.
		c.deadlinePause.deadlineHeldSince, c.phaseDeadline = c.phaseDeadline, time.Time{}
	}
}

// closeRound starts the aggregation of the accepted updates. The closing phase is not journaled: after a crash the
// round opens again with the same participants, which offer their saved updates again.
func (c *CoordinatorMachine) closeRound(now time.Time) {
	c.dropSilentAgents(now)
	c.enterPhase(now, CoordinatorClosing)
	var accepted []Participant
	for _, p := range c.record.Participants {
		if !p.AcceptedUpdateDigest.IsZero() {
			accepted = append(accepted, p)
		}
	}
	c.emitEffect(AggregateUpdates{c.record.Round, c.record.Plan, BuildContributions(accepted, &c.record.Plan, &c.cfg),
		c.mostParticipantsDiverged()})
}

// mostParticipantsDiverged reports whether the local training of more than half of the participants diverged from a
// model that was aggregated in this run. The coordinator then rejects the aggregation, and the run returns to an
// earlier model.
func (c *CoordinatorMachine) mostParticipantsDiverged() bool {
	declared, _ := c.countDivergedParticipants()
	return 2*declared > len(c.progress.progressByAgent)
}

// mostParticipantsMayDiverge reports whether mostParticipantsDiverged may still become true when the remaining
// participants answer.
func (c *CoordinatorMachine) mostParticipantsMayDiverge() bool {
	declared, awaited := c.countDivergedParticipants()
	return declared > 0 && 2*(declared+awaited) > len(c.progress.progressByAgent)
}

// countDivergedParticipants returns the number of participants whose local steps diverged, and the number of
// participants without a result. Both numbers are 0 if the model was not aggregated in this run.
func (c *CoordinatorMachine) countDivergedParticipants() (declared, awaited int) {
	if p := &c.record.Plan; p.Kind != wire.KindTraining || len(p.SuspectAgents) == 0 || p.HasEndlessBlocks {
		return 0, 0
	}
	for _, p := range c.progress.progressByAgent {
		switch {
		case p.localStepsDiverged:
			declared++
		case p.state < stateAccepted:
			awaited++
		}
	}
	return declared, awaited
}

// dropSilentAgents marks participants that never answered as absent until their next message. It does nothing if the
// round ended before the coordinator invited these participants again, since their answer may arrive together with the
// update.
func (c *CoordinatorMachine) dropSilentAgents(now time.Time) {
	if c.announcement.publishedAt.IsZero() || !c.deadlinePassed &&
		now.Sub(c.announcement.publishedAt) <= c.cfg.ReinviteInterval {
		return
	}
	var silent []wire.AgentID
	for _, p := range c.progress.progressByAgent {
		if m := c.roster.memberByAgent[p.Agent]; m != nil && m.isPresent && p.state == stateInvited {
			silent = append(silent, p.Agent)
		}
	}
	slices.Sort(silent)
	for _, a := range silent {
		c.roster.changeMember(a, func(m *rosterMember) { m.isPresent = false })
		c.reportEvent(AgentLeft{a, LeftSilent, c.roster.eligibleMembers})
	}
}

// missingParticipants returns the participants that were drawn and produced no result, in id order.
func (c *CoordinatorMachine) missingParticipants() []wire.AgentID {
	var ids []wire.AgentID
	for _, p := range c.progress.progressByAgent {
		if p.DrawCount > 0 && (p.state == stateInvited || p.state == stateJoined) {
			ids = append(ids, p.Agent)
		}
	}
	slices.Sort(ids)
	return ids
}

// selectedAgentCount returns the number of participants that were drawn to send an update.
func (c *CoordinatorMachine) selectedAgentCount() (n int) {
	for _, p := range c.progress.progressByAgent {
		if p.DrawCount > 0 {
			n++
		}
	}
	return n
}

// handleAggregationEnded records the result of the aggregation and continues with the next plan.
func (c *CoordinatorMachine) handleAggregationEnded(now time.Time, e AggregationEnded) {
	if !c.isInPhase(CoordinatorClosing) || e.Round != c.record.Round {
		return
	}
	c.sidelineAgents(e.SpoilingAgents, SidelinedSpoiledModel)
	switch {
	case errors.Is(e.Err, rule.ErrTooFewUpdates):
		c.abandonRound(now, AbandonTooFewForRule, e.Err)
		return
	case errors.Is(e.Err, ErrSpoolDamaged):
		c.abandonRound(now, AbandonSpoolDamaged, e.Err)
		return
	case e.Err != nil:
		c.abandonRound(now, AbandonUnusableAggregate, e.Err)
		return
	}
	c.record.LastAcceptedUpdates = AcceptedUpdates{e.Round, map[wire.AgentID]wire.Digest{}}
	for _, p := range c.progress.progressByAgent {
		if p.state == stateAccepted {
			c.record.LastAcceptedUpdates.UpdateDigestByAgent[p.Agent] = p.AcceptedUpdateDigest
			if !slices.Contains(e.NextPlan.SuspectAgents,
				p.Agent) || c.sidelinedAgentByID[p.Agent].Reason != SidelinedSpoiledModel {
				// Keep the entry of a suspect agent until the next round shows whether the agent's update spoiled the
				// model.
				c.forgetSidelinedAgent(p.Agent)
			}
			c.markRowsUsed(p.Agent, e.Round)
		}
	}
	outcome := wire.RoundOutcome{Round: e.Round}
	for a, update := range c.record.LastAcceptedUpdates.UpdateDigestByAgent {
		fate := max(e.FateByLeftOutAgent[a], wire.FateAggregated)
		tag := wire.UpdateTagOf(c.record.Run, e.Round, a, update)
		outcome.UpdateFates = append(outcome.UpdateFates, wire.TaggedUpdateFate{Tag: tag, Fate: fate})
	}
	c.record.appendRoundOutcome(outcome)
	o := c.recordRoundOutcome(now, RoundOutcome{ModelVersionAfter: e.NextPlan.BaseModelVersion,
		AcceptedUpdates: len(c.record.LastAcceptedUpdates.UpdateDigestByAgent),
		Measurements:    e.Measurements})
	c.reportEvent(RoundClosed{
		Round: o.Round, Kind: o.Kind, NewModelVersion: o.ModelVersionAfter, SelectedAgents: o.SelectedAgents,
		AcceptedUpdates:   o.AcceptedUpdates,
		AggregatedUpdates: o.AcceptedUpdates - len(e.FateByLeftOutAgent),
		MissingAgents:     c.missingParticipants(), ClosedByDeadline: c.deadlinePassed, RoundDuration: o.RoundDuration,
	})
	c.recordMeasurements(&e)
	c.record.Plan, c.consecutiveAbandons = e.NextPlan, 0
	c.progress.progressByAgent = nil
	c.forgetParticipants()
	switch why := c.runStopReason(now); {
	case why != "":
		c.finishRun(now, why)
	case c.pauseOrStopByCommand(now):
	case c.cfg.PauseBetweenRounds > 0:
		c.enterIdlePhase(now, CoordinatorIdle)
		c.phaseDeadline = now.Add(c.cfg.PauseBetweenRounds)
	default:
		c.startNextRound(now)
	}
}

// recordRoundOutcome completes the outcome of the current round, stores it in the record, and returns it.
func (c *CoordinatorMachine) recordRoundOutcome(now time.Time, o RoundOutcome) RoundOutcome {
	o.Round, o.Attempt, o.Kind = c.record.Round, c.record.Attempt, c.record.Plan.Kind
	o.SelectedAgents, o.RoundDuration, o.EndedAt = c.selectedAgentCount(), now.Sub(c.announcement.roundAnnouncedAt),
		now.UTC().Truncate(time.Millisecond)
	c.record.LastOutcome, c.roundAwaitingDiscard = &o, o.Round
	return o
}

// Bounds of the delay after an abandoned round. The delay doubles with each consecutive abandoned round.
const (
	firstRoundRetryDelay = time.Second
	maxRoundRetryDelay   = time.Minute
)

// abandonRound ends the round without a new model, discards all of its updates and saves the decision in the journal.
// The next round starts from the same base model after a delay, because the cause may persist.
func (c *CoordinatorMachine) abandonRound(now time.Time, reason AbandonReason, err error) {
	c.dropSilentAgents(now)
	accepted := 0
	for _, p := range c.progress.progressByAgent {
		if p.state == stateAccepted {
			accepted++
		}
	}
	c.record.appendRoundOutcome(wire.RoundOutcome{Round: c.record.Round, IsAbandoned: true})
	o := c.recordRoundOutcome(now, RoundOutcome{AbandonReason: reason,
		ModelVersionAfter: c.record.Plan.BaseModelVersion, AcceptedUpdates: accepted})
	c.reportEvent(RoundAbandoned{
		Round: o.Round, Kind: o.Kind, Reason: reason, SelectedAgents: o.SelectedAgents, AcceptedUpdates: accepted,
		MissingAgents: c.missingParticipants(),
		Err:           err, RoundDuration: o.RoundDuration,
	})
	if c.pauseOrStopByCommand(now) {
		return
	}
	c.retryRoundAt = now.Add(min(firstRoundRetryDelay<<min(c.consecutiveAbandons, 10), maxRoundRetryDelay))
	c.consecutiveAbandons++
	if c.startScheduleWaitIfNeeded(now) {
		return
	}
	c.advanceRound()
	c.startGathering(now)
}

// advanceRound increments the round number and readmits the agents whose exclusion from draws has ended.
func (c *CoordinatorMachine) advanceRound() {
	c.record.Round++
	c.record.Attempt = 1
	c.readmitDueAgents()
}

// The outcomes of a round, as label values.
const (
	publishedRoundLabel = "published"
	abandonedRoundLabel = "abandoned"
)

// Label values for the results of participants. Their counts sum to the number of selected participants.
const (
	acceptedParticipantLabel   = "accepted"
	missingParticipantLabel    = "missing"
	droppedOutParticipantLabel = "out"
)

// noAbandonReasonLabel is the metric label for the abandon reason of a round that was not abandoned.
const noAbandonReasonLabel = "none"

var (
	endedRoundCountMetric = newEndedRoundsMetric()
	roundDurationMetric   = observe.HistogramByLabel("round_duration_seconds",
		"Time from the announcement of a round to its end, by outcome.", roundDurationBuckets,
		"outcome", []string{publishedRoundLabel, abandonedRoundLabel})
	roundsClosedByDeadlineMetric = observe.Counter("rounds_closed_by_deadline_total",
		"Published rounds that ended at the deadline although updates were missing.")
	aggregatedUpdatesMetric = observe.Counter("updates_folded_total", "Updates that were aggregated into a stored "+
		"model.")
	lastRoundTimeMetric = observe.OptionalGauge("last_round_timestamp_seconds",
		"Time of the last published round.")
	selectedParticipantsMetric = observe.Counter("participants_selected_total",
		"Agents drawn for a round, counted at the end of the round.")
	missingParticipantsMetric = observe.Counter("participants_missing_total",
		"Participants that had sent no result when the round ended.")
	lastRoundParticipantsMetric = observe.GaugeByLabel("last_round_participants",
		"Participants of the last round, by outcome: accepted, missing (sent no result) or out (declined the round, "+
			"or update refused).",
		"fate", []string{acceptedParticipantLabel, missingParticipantLabel, droppedOutParticipantLabel})
)

func newEndedRoundsMetric() *observe.Metric {
	m := &observe.Metric{Name: "rounds_total", LabelNames: []string{"kind", "outcome", "reason"},
		Help: "Completed rounds, by kind, outcome and reason why they were abandoned: fold (invalid aggregate), rule " +
			"(too few updates for the aggregation rule), model or spool (file missing or changed), asked (by " +
			"command)."}
	for _, kind := range wire.RoundKinds() {
		m.InitialSeries = append(m.InitialSeries, []string{kind.String(), publishedRoundLabel, noAbandonReasonLabel})
		for _, reason := range AbandonReasons() {
			m.InitialSeries = append(m.InitialSeries, []string{kind.String(), abandonedRoundLabel, string(reason)})
		}
	}
	return m
}

// RoundClosed is emitted when the updates of a round have been aggregated.
type RoundClosed struct {
	Round             wire.RoundID
	Kind              wire.RoundKind
	NewModelVersion   wire.ModelVersion
	SelectedAgents    int
	AcceptedUpdates   int
	AggregatedUpdates int // number of accepted updates that are in the model
	// MissingAgents are the selected agents whose updates were neither accepted nor refused, and that did not decline.
	MissingAgents    []wire.AgentID
	ClosedByDeadline bool
	RoundDuration    time.Duration
}

// Describe implements observe.Event.
func (e RoundClosed) Describe(d *observe.EventDescription) {
	d.IncCounter(endedRoundCountMetric, e.Kind.String(), publishedRoundLabel, noAbandonReasonLabel)
	d.ObserveHistogram(roundDurationMetric, e.RoundDuration.Seconds(), publishedRoundLabel)
	if e.ClosedByDeadline {
		d.IncCounter(roundsClosedByDeadlineMetric)
	}
	d.AddToCounter(aggregatedUpdatesMetric, float64(e.AggregatedUpdates))
	d.SetGaugeToNow(lastRoundTimeMetric)
	recordParticipantMetrics(d, e.SelectedAgents, e.AcceptedUpdates, len(e.MissingAgents))
	attributes := []any{"round", e.Round, "kind", e.Kind, "accepted", e.AcceptedUpdates, "selected", e.SelectedAgents,
		"took", e.RoundDuration}
	if e.Kind == wire.KindTraining {
		attributes = append(attributes, "version", e.NewModelVersion)
	}
	if len(e.MissingAgents) > 0 {
		attributes = append(attributes, "missing", e.MissingAgents)
	}
	d.Log(observe.Info, "round closed", attributes...)
	d.ShowStatusValue(observe.ActivityStatus, fmt.Sprintf("round %d ended with %d of %d updates", e.Round,
		e.AcceptedUpdates,
		e.SelectedAgents))
}

// RoundAbandoned is emitted when a round has ended without a new model. The round's updates are deleted.
type RoundAbandoned struct {
	Round           wire.RoundID
	Kind            wire.RoundKind
	Reason          AbandonReason
	SelectedAgents  int
	AcceptedUpdates int
	MissingAgents   []wire.AgentID
	Err             error
	RoundDuration   time.Duration
}

// Describe implements observe.Event.
func (e RoundAbandoned) Describe(d *observe.EventDescription) {
	d.IncCounter(endedRoundCountMetric, e.Kind.String(), abandonedRoundLabel, string(e.Reason))
	d.ObserveHistogram(roundDurationMetric, e.RoundDuration.Seconds(), abandonedRoundLabel)
	recordParticipantMetrics(d, e.SelectedAgents, e.AcceptedUpdates, len(e.MissingAgents))
	attributes := []any{"round", e.Round, "reason", e.Reason, "accepted", e.AcceptedUpdates, "selected",
		e.SelectedAgents,
		"took", e.RoundDuration}
	if len(e.MissingAgents) > 0 {
		attributes = append(attributes, "missing", e.MissingAgents)
	}
	if e.Err != nil {
		attributes = append(attributes, "err", e.Err)
	}
	d.Log(observe.Warn, "round abandoned", attributes...)
	d.ShowStatusValue(observe.ActivityStatus, fmt.Sprintf("round %d abandoned with %d of %d updates", e.Round,
		e.AcceptedUpdates, e.SelectedAgents))
}

// recordParticipantMetrics counts the participants when a round ends. A restart may open a round again, but each round
// ends once.
func recordParticipantMetrics(d *observe.EventDescription, selected, accepted, missing int) {
	d.AddToCounter(selectedParticipantsMetric, float64(selected))
	d.AddToCounter(missingParticipantsMetric, float64(missing))
	d.SetGauge(lastRoundParticipantsMetric, float64(accepted), acceptedParticipantLabel)
	d.SetGauge(lastRoundParticipantsMetric, float64(missing), missingParticipantLabel)
	d.SetGauge(lastRoundParticipantsMetric, float64(selected-accepted-missing), droppedOutParticipantLabel)
}
