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

// minDrawsToClose returns the fewest draws to close with. A statistics round draws each
// agent once, and so may have fewer draws than training with replacement.
func (c *CoordinatorMachine) minDrawsToClose(all int) int { return min(c.cfg.Quorum, all) }

// closeRoundIfReady closes the round when its target is reached or nothing more can
// come, and abandons it when the quorum is out of reach.
func (c *CoordinatorMachine) closeRoundIfReady(now time.Time) {
	accepted, possible, all := c.countAcceptedAndPossibleDraws()
	target := all
	if c.record.Plan.Kind == wire.KindTraining {
		target = min(all, c.cfg.Participants) // the rest are over-selected
	}
	ready := accepted >= target || possible == 0 && accepted >= c.minDrawsToClose(all)
	if !ready {
		c.mixing.edgeReportsDeadline = time.Time{} // another was drawn meanwhile
	}
	switch {
	case ready && !c.awaitsEdgeReports(now):
		c.closeRound(now)
	case ready:
	case accepted+possible < c.minDrawsToClose(all) && c.mostParticipantsDiverged():
		c.closeRound(now)
	case accepted+possible < c.minDrawsToClose(all) && c.mostParticipantsMayDiverge(): // which the other answers decide
	case accepted+possible < c.minDrawsToClose(all):
		c.abandonRound(now, AbandonQuorumMissed, nil)
	case accepted >= c.minDrawsToClose(all):
		c.bringDeadlineForward(now, possible)
	}
}

// bringDeadlineForward brings the deadline forward where a round still waits only for agents that have sat out, and
// have given no result since. The round then ends after 1 + s/8 times what the others have taken, a second at least; s
// is how many draws they have sat out, of doubted. So the silent hardly stretch rounds, and an agent that was silent
// once and is slow gets more each time, up to the whole deadline.
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

// handleRoundDeadline closes the round with what is there, if that is enough. Else it abandons the round, or waits on
// while the announcement is not out, or the host cannot write.
func (c *CoordinatorMachine) handleRoundDeadline(now time.Time) {
	c.deadlinePassed = true
	// otherwise the announcement may not have reached them, or their updates the coordinator
	if c.linkUp && !c.announcement.publishedAt.IsZero() && !c.deadlinePause.roundInterrupted &&
		c.deadlinePause.storageFailingSince.IsZero() {
		c.sidelineAgents(c.missingParticipants(), SidelinedSilent)
	}
	switch accepted, _, all := c.countAcceptedAndPossibleDraws(); {
	case accepted >= c.minDrawsToClose(all), c.mostParticipantsDiverged():
		c.closeRound(now)
	case c.announcement.publishedAt.IsZero(): // nobody could join: the round's time begins when the announcement is out
		c.deadlinePassed, c.phaseDeadline = false, now.Add(c.cfg.RoundTimeout)
	case c.deadlinePause.storageFailingSince.IsZero():
		c.abandonRound(now, AbandonQuorumMissed, nil)
	default: // what is missing may have been sent
		c.deadlinePause.deadlineHeldSince, c.phaseDeadline = c.phaseDeadline, time.Time{}
	}
}

// closeRound folds what is here. Nothing of it is on disk: a crash before the record of the next round opens this one
// again, with the same participants, who offer again what they have kept.
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

// mostParticipantsDiverged reports whether the local steps of more than half of the participants diverged from a model
// that a fold of this run has made: the fold is rejected, and the run returns to an earlier model.
func (c *CoordinatorMachine) mostParticipantsDiverged() bool {
	declared, _ := c.countDivergedParticipants()
	return 2*declared > len(c.progress.progressByAgent)
}

// mostParticipantsMayDiverge reports whether mostParticipantsDiverged may become true with the answers that are still
// awaited.
func (c *CoordinatorMachine) mostParticipantsMayDiverge() bool {
	declared, awaited := c.countDivergedParticipants()
	return declared > 0 && 2*(declared+awaited) > len(c.progress.progressByAgent)
}

// countDivergedParticipants counts the participants whose local steps diverged, and the participants without a result
// so far. Both are 0 if the model was not made by a fold of this run.
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

// dropSilentAgents stops counting agents that never answered, until they are heard again. A round that is over
// before they are invited again says nothing about them: the answer may be their update.
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

// missingParticipants returns, in id order, the participants that gave no result.
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

// selectedAgentCount counts the participants that were to send something.
func (c *CoordinatorMachine) selectedAgentCount() (n int) {
	for _, p := range c.progress.progressByAgent {
		if p.DrawCount > 0 {
			n++
		}
	}
	return n
}

// handleAggregationEnded moves on to the next plan.
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
				c.forgetSidelinedAgent(p.Agent) // else whether its update spoils the model shows in the next round
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

// recordRoundOutcome puts into the record how the round ended, and returns it.
func (c *CoordinatorMachine) recordRoundOutcome(now time.Time, o RoundOutcome) RoundOutcome {
	o.Round, o.Attempt, o.Kind = c.record.Round, c.record.Attempt, c.record.Plan.Kind
	o.SelectedAgents, o.RoundDuration, o.EndedAt = c.selectedAgentCount(), now.Sub(c.announcement.roundAnnouncedAt),
		now.UTC().Truncate(time.Millisecond)
	c.record.LastOutcome, c.roundAwaitingDiscard = &o, o.Round
	return o
}

// The wait after an abandoned round, which doubles with each further one in a row.
const (
	firstRoundRetryDelay = time.Second
	maxRoundRetryDelay   = time.Minute
)

// abandonRound gives up the round: a journaled decision, and the one case in which
// all of its updates are thrown away. The next round has the same base, and
// waits a little: what failed at once would fail at once again.
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

// advanceRound moves the record to the round after the present one.
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

// The results of a participant, as label values. Their numbers add up to the number of selected participants.
const (
	acceptedParticipantLabel   = "accepted"
	missingParticipantLabel    = "missing"
	droppedOutParticipantLabel = "out"
)

// noAbandonReasonLabel is the label value of a published round.
const noAbandonReasonLabel = "none"

var (
	endedRoundCountMetric = newEndedRoundsMetric()
	roundDurationMetric   = observe.HistogramByLabel("round_duration_seconds",
		"Time from the announcement of a round to its end, by outcome.", roundDurationBuckets,
		"outcome", []string{publishedRoundLabel, abandonedRoundLabel})
	roundsClosedByDeadlineMetric = observe.Counter("rounds_closed_by_deadline_total",
		"Published rounds closed by the deadline with updates missing.")
	aggregatedUpdatesMetric = observe.Counter("updates_folded_total", "Updates aggregated into a stored model.")
	lastRoundTimeMetric     = observe.OptionalGauge("last_round_timestamp_seconds",
		"Time of the last published round.")
	selectedParticipantsMetric = observe.Counter("participants_selected_total",
		"Agents drawn for a round, counted at the end of the round.")
	missingParticipantsMetric = observe.Counter("participants_missing_total",
		"Participants without any result at the end of the round.")
	lastRoundParticipantsMetric = observe.GaugeByLabel("last_round_participants",
		"Participants of the last round by fate: accepted, missing (sent no result) or out (declined or refused).",
		"fate", []string{acceptedParticipantLabel, missingParticipantLabel, droppedOutParticipantLabel})
)

func newEndedRoundsMetric() *observe.Metric {
	m := &observe.Metric{Name: "rounds_total", LabelNames: []string{"kind", "outcome", "reason"},
		Help: "Completed rounds by kind, outcome and reason for abandoning. Fold: invalid aggregate; rule: too few " +
			"updates for the aggregation rule; model, spool: file lost or changed; asked: by command."}
	for _, kind := range wire.RoundKinds() {
		m.InitialSeries = append(m.InitialSeries, []string{kind.String(), publishedRoundLabel, noAbandonReasonLabel})
		for _, reason := range AbandonReasons() {
			m.InitialSeries = append(m.InitialSeries, []string{kind.String(), abandonedRoundLabel, string(reason)})
		}
	}
	return m
}

// RoundClosed: the updates of a round are aggregated.
type RoundClosed struct {
	Round             wire.RoundID
	Kind              wire.RoundKind
	NewModelVersion   wire.ModelVersion // of the new model
	SelectedAgents    int
	AcceptedUpdates   int
	AggregatedUpdates int // accepted updates that are in the model
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
	d.ShowStatusValue(observe.ActivityStatus, fmt.Sprintf("round %d closed with %d of %d", e.Round, e.AcceptedUpdates,
		e.SelectedAgents))
}

// RoundAbandoned: a round ended without a model, and its updates are deleted.
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
	d.ShowStatusValue(observe.ActivityStatus, fmt.Sprintf("round %d abandoned with %d of %d", e.Round,
		e.AcceptedUpdates, e.SelectedAgents))
}

// recordParticipantMetrics counts the participants at the end of a round, because a restart opens a round again, but
// each round ends once.
func recordParticipantMetrics(d *observe.EventDescription, selected, accepted, missing int) {
	d.AddToCounter(selectedParticipantsMetric, float64(selected))
	d.AddToCounter(missingParticipantsMetric, float64(missing))
	d.SetGauge(lastRoundParticipantsMetric, float64(accepted), acceptedParticipantLabel)
	d.SetGauge(lastRoundParticipantsMetric, float64(missing), missingParticipantLabel)
	d.SetGauge(lastRoundParticipantsMetric, float64(selected-accepted-missing), droppedOutParticipantLabel)
}
