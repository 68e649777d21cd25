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

// requiredDraws returns the fewest draws to close with. A statistics round draws each
// agent once, and so may have fewer draws than training with replacement.
func (c *Coordinator) requiredDraws(all int) int { return min(c.cfg.Quorum, all) }

// closeIfReady closes the round when its target is reached or nothing more can
// come, and abandons it when the quorum is out of reach.
func (c *Coordinator) closeIfReady(now time.Time) {
	accepted, possible, all := c.countDraws()
	target := all
	if c.rec.Plan.Kind == wire.KindTraining {
		target = min(all, c.cfg.Participants) // the rest are over-selected
	}
	ready := accepted >= target || possible == 0 && accepted >= c.requiredDraws(all)
	if !ready {
		c.mixing.reportsDeadline = time.Time{} // another was drawn meanwhile
	}
	switch {
	case ready && !c.awaitsEdgeReports(now):
		c.close(now)
	case ready:
	case accepted+possible < c.requiredDraws(all) && c.mostParticipantsDiverged():
		c.close(now)
	case accepted+possible < c.requiredDraws(all) && c.mostMayHaveDiverged(): // which the other answers decide
	case accepted+possible < c.requiredDraws(all):
		c.abandon(now, AbandonQuorum, nil)
	case accepted >= c.requiredDraws(all):
		c.bringDeadlineForward(now, possible)
	}
}

// bringDeadlineForward brings the deadline forward where a round still waits only for agents that have sat out, and
// have given no result since. The round then ends after 1 + s/8 times what the others have taken, a second at least; s
// is how many draws they have sat out, of doubted. So the silent hardly stretch rounds, and an agent that was silent
// once and is slow gets more each time, up to the whole deadline.
func (c *Coordinator) bringDeadlineForward(now time.Time, possible int) {
	draws, satOut := c.awaitedSidelinedDraws()
	if draws < possible || !c.pause.hostFailingSince.IsZero() {
		return
	}
	most := float64(max(now.Sub(c.announcement.roundAnnouncedAt), time.Second)) * (1 + satOut/8)
	at := c.announcement.roundAnnouncedAt.Add(time.Duration(most))
	if most < float64(c.cfg.Deadline) && at.Before(c.phaseDeadline) {
		c.phaseDeadline = at
	}
}

// handleDeadline closes the round with what is there, if that is enough. Else it abandons the round, or waits on while
// the announcement is not out, or the host cannot write.
func (c *Coordinator) handleDeadline(now time.Time) {
	c.deadlinePassed = true
	// otherwise the announcement may not have reached them, or their updates the coordinator
	if c.linkUp && !c.announcement.publishedAt.IsZero() && !c.pause.roundInterrupted &&
		c.pause.hostFailingSince.IsZero() {
		c.sideline(c.missingParticipants(), SidelinedSilent)
	}
	switch accepted, _, all := c.countDraws(); {
	case accepted >= c.requiredDraws(all), c.mostParticipantsDiverged():
		c.close(now)
	case c.announcement.publishedAt.IsZero(): // nobody could join: the round's time begins when the announcement is out
		c.deadlinePassed, c.phaseDeadline = false, now.Add(c.cfg.Deadline)
	case c.pause.hostFailingSince.IsZero():
		c.abandon(now, AbandonQuorum, nil)
	default: // what is missing may have been sent
		c.pause.deadlineHeldSince, c.phaseDeadline = c.phaseDeadline, time.Time{}
	}
}

// close folds what is here. Nothing of it is on disk: a crash before the record of the next round opens this one again,
// with the same participants, who offer again what they have kept.
func (c *Coordinator) close(now time.Time) {
	c.dropSilentAgents(now)
	c.enter(now, CoordinatorClosing)
	var accepted []Participant
	for _, p := range c.rec.Participants {
		if !p.Accepted.IsZero() {
			accepted = append(accepted, p)
		}
	}
	c.emit(Aggregate{c.rec.Round, c.rec.Plan, Contributions(accepted, &c.rec.Plan, &c.cfg),
		c.mostParticipantsDiverged()})
}

// mostParticipantsDiverged reports whether the local steps of more than half of the participants diverged from a model
// that a fold of this run has made: the fold is rejected, and the run returns to an earlier model.
func (c *Coordinator) mostParticipantsDiverged() bool {
	declared, _ := c.countDiverged()
	return 2*declared > len(c.progress.byAgent)
}

// mostMayHaveDiverged reports whether diverged may become true with the answers that are still awaited.
func (c *Coordinator) mostMayHaveDiverged() bool {
	declared, awaited := c.countDiverged()
	return declared > 0 && 2*(declared+awaited) > len(c.progress.byAgent)
}

// countDiverged counts the participants whose local steps diverged, and the participants without a result so far.
// Both are 0 if the model was not made by a fold of this run.
func (c *Coordinator) countDiverged() (declared, awaited int) {
	if p := &c.rec.Plan; p.Kind != wire.KindTraining || len(p.Suspects) == 0 || p.Endless {
		return 0, 0
	}
	for _, p := range c.progress.byAgent {
		switch {
		case p.localStepsDiverged:
			declared++
		case p.state < peerAccepted:
			awaited++
		}
	}
	return declared, awaited
}

// dropSilentAgents stops counting agents that never answered, until they are heard again. A round that is over
// before they are invited again says nothing about them: the answer may be their update.
func (c *Coordinator) dropSilentAgents(now time.Time) {
	if c.announcement.publishedAt.IsZero() || !c.deadlinePassed &&
		now.Sub(c.announcement.publishedAt) <= c.cfg.InviteEvery {
		return
	}
	var silent []wire.AgentID
	for _, p := range c.progress.byAgent {
		if m := c.roster.members[p.Agent]; m != nil && m.present && p.state == peerInvited {
			silent = append(silent, p.Agent)
		}
	}
	slices.Sort(silent)
	for _, a := range silent {
		c.roster.changeMember(a, func(m *rosterMember) { m.present = false })
		c.report(AgentLeft{a, LeftSilent, c.roster.eligibleMembers})
	}
}

// missingParticipants returns, in id order, the participants that gave no result.
func (c *Coordinator) missingParticipants() []wire.AgentID {
	var ids []wire.AgentID
	for _, p := range c.progress.byAgent {
		if p.Times > 0 && (p.state == peerInvited || p.state == peerJoined) {
			ids = append(ids, p.Agent)
		}
	}
	slices.Sort(ids)
	return ids
}

// selectedCount counts the participants that were to send something.
func (c *Coordinator) selectedCount() (n int) {
	for _, p := range c.progress.byAgent {
		if p.Times > 0 {
			n++
		}
	}
	return n
}

// handleAggregated moves on to the next plan.
func (c *Coordinator) handleAggregated(now time.Time, e Aggregated) {
	if !c.isInPhase(CoordinatorClosing) || e.Round != c.rec.Round {
		return
	}
	c.sideline(e.SpoilingAgents, SidelinedFold)
	switch {
	case errors.Is(e.Err, rule.ErrTooFew):
		c.abandon(now, AbandonRule, e.Err)
		return
	case errors.Is(e.Err, ErrSpool):
		c.abandon(now, AbandonSpool, e.Err)
		return
	case e.Err != nil:
		c.abandon(now, AbandonFold, e.Err)
		return
	}
	c.rec.Counted = AcceptedUpdates{e.Round, map[wire.AgentID]wire.Digest{}}
	for _, p := range c.progress.byAgent {
		if p.state == peerAccepted {
			c.rec.Counted.Updates[p.Agent] = p.Accepted
			if !slices.Contains(e.NextPlan.Suspects, p.Agent) || c.sidelined[p.Agent].Reason != SidelinedFold {
				c.clearSideline(p.Agent) // else whether its update spoils the model shows in the next round
			}
			c.markRowsUsed(p.Agent, e.Round)
		}
	}
	outcome := wire.RoundOutcome{Round: e.Round}
	for a, update := range c.rec.Counted.Updates {
		fate := max(e.FateByLeftOutAgent[a], wire.FateFolded)
		tag := wire.UpdateTagOf(c.rec.Run, e.Round, a, update)
		outcome.UpdateFates = append(outcome.UpdateFates, wire.TaggedFate{Tag: tag, Fate: fate})
	}
	c.rec.appendOutcome(outcome)
	o := c.recordOutcome(now, RoundOutcome{Version: e.NextPlan.Version, Accepted: len(c.rec.Counted.Updates),
		Measured: e.Measurements})
	c.report(RoundClosed{
		Round: o.Round, Kind: o.Kind, Version: o.Version, Selected: o.Selected, Accepted: o.Accepted,
		AggregatedUpdates: o.Accepted - len(e.FateByLeftOutAgent),
		Missing:           c.missingParticipants(), ByDeadline: c.deadlinePassed, RoundDuration: o.Took,
	})
	c.noteMeasurements(&e)
	c.rec.Plan, c.consecutiveAbandons = e.NextPlan, 0
	c.progress.byAgent = nil
	c.forgetParticipants()
	switch why := c.runStopReason(now); {
	case why != "":
		c.finish(now, why)
	case c.pauseOrStopByCourse(now):
	case c.cfg.Pause > 0:
		c.enterIdlePhase(now, CoordinatorIdle)
		c.phaseDeadline = now.Add(c.cfg.Pause)
	default:
		c.startNextRound(now)
	}
}

// recordOutcome puts into the record how the round ended, and returns it.
func (c *Coordinator) recordOutcome(now time.Time, o RoundOutcome) RoundOutcome {
	o.Round, o.Attempt, o.Kind = c.rec.Round, c.rec.Attempt, c.rec.Plan.Kind
	o.Selected, o.Took, o.At = c.selectedCount(), now.Sub(c.announcement.roundAnnouncedAt),
		now.UTC().Truncate(time.Millisecond)
	c.rec.Last, c.roundAwaitingDiscard = &o, o.Round
	return o
}

// The wait after an abandoned round, which doubles with each further one in a row.
const (
	retryFirst = time.Second
	retryMost  = time.Minute
)

// abandon gives up the round: a journaled decision, and the one case in which
// all of its updates are thrown away. The next round has the same base, and
// waits a little: what failed at once would fail at once again.
func (c *Coordinator) abandon(now time.Time, reason AbandonReason, err error) {
	c.dropSilentAgents(now)
	accepted := 0
	for _, p := range c.progress.byAgent {
		if p.state == peerAccepted {
			accepted++
		}
	}
	c.rec.appendOutcome(wire.RoundOutcome{Round: c.rec.Round, Abandoned: true})
	o := c.recordOutcome(now, RoundOutcome{Abandoned: reason, Version: c.rec.Plan.Version, Accepted: accepted})
	c.report(RoundAbandoned{
		Round: o.Round, Kind: o.Kind, Reason: reason, Selected: o.Selected, Accepted: accepted,
		Missing: c.missingParticipants(),
		Err:     err, RoundDuration: o.Took,
	})
	if c.pauseOrStopByCourse(now) {
		return
	}
	c.retryAt = now.Add(min(retryFirst<<min(c.consecutiveAbandons, 10), retryMost))
	c.consecutiveAbandons++
	if c.waitForSchedule(now) {
		return
	}
	c.advanceRound()
	c.startGathering(now)
}

// advanceRound moves the record to the round after the present one.
func (c *Coordinator) advanceRound() {
	c.rec.Round++
	c.rec.Attempt = 1
	c.readmitDue()
}

// The outcomes of a round, as label values.
const (
	outcomePublished = "published"
	outcomeAbandoned = "abandoned"
)

// The results of a participant, as label values. Their numbers add up to the number of selected participants.
const (
	participantAccepted = "accepted"
	participantMissing  = "missing"
	participantOut      = "out"
)

// noAbandonReason is the label value of a published round.
const noAbandonReason = "none"

var (
	endedRounds   = endedRoundsMetric()
	roundDuration = observe.HistogramByLabel("round_duration_seconds",
		"Time from the announcement of a round to its end, by outcome.", roundBuckets,
		"outcome", []string{outcomePublished, outcomeAbandoned})
	roundsClosedByDeadline = observe.Counter("rounds_closed_by_deadline_total",
		"Published rounds that were closed by their deadline, with updates still missing.")
	aggregatedUpdates = observe.Counter("updates_folded_total", "Updates that are in a model which is on disk.")
	lastRoundTime     = observe.OptionalGauge("last_round_timestamp_seconds",
		"When a round was last published, in Unix time.")
	selectedParticipants = observe.Counter("participants_selected_total",
		"Agents drawn for a round, counted when the round ends.")
	missingParticipants = observe.Counter("participants_missing_total",
		"Participants that gave no result at all, counted when the round ends.")
	lastRoundParticipants = observe.GaugeByLabel("last_round_participants",
		"Participants of the round that ended last, by fate: accepted, missing (no result came) or out (declined "+
			"or refused).",
		"fate", []string{participantAccepted, participantMissing, participantOut})
)

func endedRoundsMetric() *observe.Metric {
	m := &observe.Metric{Name: "rounds_total", Labels: []string{"kind", "outcome", "reason"},
		Help: "Rounds that ended, by kind, outcome, and the reason for abandoning: quorum is too few updates, fold " +
			"an aggregate that is no model, rule fewer updates than aggregation.rule needs, model a base model and " +
			"spool an update that the coordinator's disk has lost or changed, asked a command."}
	for _, kind := range wire.RoundKinds() {
		m.Series = append(m.Series, []string{kind.String(), outcomePublished, noAbandonReason})
		for _, reason := range AbandonReasons() {
			m.Series = append(m.Series, []string{kind.String(), outcomeAbandoned, string(reason)})
		}
	}
	return m
}

// RoundClosed: the updates of a round are aggregated.
type RoundClosed struct {
	Round             wire.RoundID
	Kind              wire.RoundKind
	Version           wire.ModelVersion // of the new model
	Selected          int
	Accepted          int
	AggregatedUpdates int // accepted updates that are in the model
	// Missing are the selected agents whose updates were neither accepted nor refused, and that did not decline.
	Missing       []wire.AgentID
	ByDeadline    bool
	RoundDuration time.Duration
}

// Describe implements observe.Event.
func (e RoundClosed) Describe(d *observe.Description) {
	d.Inc(endedRounds, e.Kind.String(), outcomePublished, noAbandonReason)
	d.Observe(roundDuration, e.RoundDuration.Seconds(), outcomePublished)
	if e.ByDeadline {
		d.Inc(roundsClosedByDeadline)
	}
	d.Add(aggregatedUpdates, float64(e.AggregatedUpdates))
	d.SetNow(lastRoundTime)
	describeParticipants(d, e.Selected, e.Accepted, len(e.Missing))
	attributes := []any{"round", e.Round, "kind", e.Kind, "accepted", e.Accepted, "selected", e.Selected,
		"took", e.RoundDuration}
	if e.Kind == wire.KindTraining {
		attributes = append(attributes, "version", e.Version)
	}
	if len(e.Missing) > 0 {
		attributes = append(attributes, "missing", e.Missing)
	}
	d.Log(observe.Info, "round closed", attributes...)
	d.Show(observe.Activity, fmt.Sprintf("round %d closed with %d of %d", e.Round, e.Accepted, e.Selected))
}

// RoundAbandoned: a round ended without a model, and its updates are deleted.
type RoundAbandoned struct {
	Round         wire.RoundID
	Kind          wire.RoundKind
	Reason        AbandonReason
	Selected      int
	Accepted      int
	Missing       []wire.AgentID
	Err           error
	RoundDuration time.Duration
}

// Describe implements observe.Event.
func (e RoundAbandoned) Describe(d *observe.Description) {
	d.Inc(endedRounds, e.Kind.String(), outcomeAbandoned, string(e.Reason))
	d.Observe(roundDuration, e.RoundDuration.Seconds(), outcomeAbandoned)
	describeParticipants(d, e.Selected, e.Accepted, len(e.Missing))
	attributes := []any{"round", e.Round, "reason", e.Reason, "accepted", e.Accepted, "selected", e.Selected,
		"took", e.RoundDuration}
	if len(e.Missing) > 0 {
		attributes = append(attributes, "missing", e.Missing)
	}
	if e.Err != nil {
		attributes = append(attributes, "err", e.Err)
	}
	d.Log(observe.Warn, "round abandoned", attributes...)
	d.Show(observe.Activity, fmt.Sprintf("round %d abandoned with %d of %d", e.Round, e.Accepted, e.Selected))
}

// describeParticipants counts the participants at the end of a round, because a restart opens a round again, but each
// round ends once.
func describeParticipants(d *observe.Description, selected, accepted, missing int) {
	d.Add(selectedParticipants, float64(selected))
	d.Add(missingParticipants, float64(missing))
	d.Set(lastRoundParticipants, float64(accepted), participantAccepted)
	d.Set(lastRoundParticipants, float64(missing), participantMissing)
	d.Set(lastRoundParticipants, float64(selected-accepted-missing), participantOut)
}
