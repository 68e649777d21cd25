package world

import (
	"maps"
	"slices"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/agent/predict"
	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/agent/upload"
	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// observeEvent checks an event that a program has reported, and updates the state of the checker.
func (c *invariantChecker) observeEvent(p *party, event observe.Event) {
	c.w.note("%s: %T %s", p.id, event, reason(event))
	switch f := event.(type) {
	case round.AgentJoined:
		at := participation{c.record.Run, f.Round, f.Agent}
		if !c.said[participationMessage{at, wire.TypeInvitationAccepted}] && !c.said[participationMessage{at,
			wire.TypeUpdate}] {
			c.w.fail("%s is recorded as joined in round %d but sent no acceptance of the invitation", f.Agent, f.Round)
		}
	case round.AgentDeclined:
		at := participation{c.record.Run, f.Round, f.Agent}
		if !c.said[participationMessage{at, wire.TypeInvitationDeclined}] && !c.unfitAgents[f.Agent] {
			c.w.fail("%s is recorded as declined in round %d but sent no refusal", f.Agent, f.Round)
		}
	case round.UpdateAccepted:
		c.checkAcceptedUpdate(f)
	case round.RoundClosed:
		c.w.note("round %d closed with %d updates", f.Round, f.AcceptedUpdates)
		c.closed++
		if f.ClosedByDeadline {
			c.missed(f.Round)
		}
	case upload.UpdateFateReceived:
		c.checkUpdateFate(p, f)
	case predict.ModelJudged:
		// Without evaluation, the agent has no held-out rows on which it could compare models.
		if f.Result == predict.Worse && c.w.plan.Evaluates > 0 {
			c.worse[p.id] = version{f.Run, uint64(f.Version)}
		}
	case upload.ResidualChanged:
		c.keepsUnsent(p, f)
	case round.RoundAbandoned:
		c.missed(f.Round)
		c.abandoned[f.Round] = true
		maps.DeleteFunc(c.accepted, func(at participation, _ wire.Digest) bool { return at.round == f.Round })
	case round.RunFinished:
		if c.w.finished.IsZero() {
			c.w.finished = c.w.jobTime()
		}
	case aggregation.StateFileRecovered:
		c.w.fail("%s was lost: %v", f.File, f.Damage)
	case coordinator.ModelEvaluated:
		c.evaluated(f)
	case aggregation.UpdateLeftOut:
		c.leftOut[f.Round] = append(c.leftOut[f.Round], f)
	case aggregation.UpdatesExcludedByRule:
		c.passedOver[f.Round] = f.Agents
	case agentround.AnnouncementObeyed:
		c.obeys(p, f.Position)
	case agentround.WorkEnded:
		c.partEnded(p, f)
	case training.LocalTrainingFinished:
		if f.LocalSteps > 0 {
			c.checkTraining(p, f)
		}
	}
}

// obeys checks that an agent never follows an announcement whose position (run, round and attempt) is lower than the
// position of an earlier announcement.
func (c *invariantChecker) obeys(p *party, o wire.AnnouncementPosition) {
	if before := c.obeyed[p.id]; o.Compare(before) < 0 && !p.hadTrouble {
		c.w.fail("%s follows announcement %s after %s", p.id, o, before)
	}
	c.obeyed[p.id] = o
}

// partEnded checks that an agent's work in a round ends only once per process, and with the result that the coordinator
// sent.
func (c *invariantChecker) partEnded(p *party, f agentround.WorkEnded) {
	at := participation{c.obeyed[p.id].Run, f.Round, p.id}
	if f.Result == agentround.WorkAccepted && !c.said[participationMessage{at, wire.TypeUpdateAccepted}] ||
		f.Result == agentround.WorkRefused && !c.said[participationMessage{at, wire.TypeUpdateRefused}] {
		c.w.fail("the work of %s in round %d is %s, but the coordinator did not send this result", p.id, f.Round,
			f.Result)
	}
	if f.Result == agentround.WorkMixedOnly {
		c.onlyMixed(p.id, f.Round)
	}
	if end := (participationEnd{at, p.life}); c.ended[end] {
		c.w.fail("%s reports the end of its work in round %d twice", p.id, f.Round)
	} else {
		c.ended[end] = true
	}
}

// checkUpdateFate compares the fate of an update (whether and how the coordinator used it) that an agent receives with
// the record of the round.
func (c *invariantChecker) checkUpdateFate(p *party, f upload.UpdateFateReceived) {
	at := participation{c.obeyed[p.id].Run, f.Round, p.id}
	digest, known := c.unsettled[at]
	want := c.fateOf(at, digest)
	leftOut := f.Fate > wire.FateAggregated && f.Fate <= wire.FateLeftOutByRule
	if known && f.Fate != want && (!leftOut || want != wire.FateLeftOutByRule) {
		c.w.fail("%s received the fate of its update of round %d as %s, want %s", p.id, f.Round, f.Fate, want)
	}
	delete(c.unsettled, at)
}

// fateOf returns the fate of an update in a finished round, that is, whether the coordinator used the update. For an
// update that was left out, it always returns FateLeftOutByRule.
func (c *invariantChecker) fateOf(at participation, digest wire.Digest) wire.UpdateFate {
	taken, in := c.sets[at.round][at.agent]
	switch {
	case c.abandoned[at.round] && c.sets[at.round] == nil:
		return wire.FateRoundAbandoned
	case in && taken.AcceptedUpdateDigest == digest &&
		(c.isLeftOut(at.round, at.agent) || slices.Contains(c.passedOver[at.round], at.agent)):
		return wire.FateLeftOutByRule
	case in && taken.AcceptedUpdateDigest == digest:
		return wire.FateAggregated
	}
	return wire.FateMissedRoundEnd
}

func (c *invariantChecker) isLeftOut(r wire.RoundID, id wire.AgentID) bool {
	return slices.ContainsFunc(c.leftOut[r], func(f aggregation.UpdateLeftOut) bool { return f.Agent == id })
}

// checkAcceptedUpdate checks that an accepted update matches the kind, base model and format of the round.
func (c *invariantChecker) checkAcceptedUpdate(f round.UpdateAccepted) {
	u, plan := &f.Update, &c.record.Plan
	base := plan.BaseModel.Hash
	if plan.Kind == wire.KindStatistics { // agents do not receive the model of a statistics round
		base = wire.Digest{}
	}
	if f.Round != c.record.Round || u.Kind != plan.Kind || u.BaseModelDigest != base ||
		u.PayloadManifest.VectorSchema != plan.UpdateSchema || u.PayloadManifest.BlobLength != plan.UpdateBytes ||
		u.PayloadManifest.Codec != plan.Codec ||
		u.Extra.CheckSupported() != nil {
		c.w.fail("the update of %s in round %d does not match the round: %+v", f.Agent, f.Round, *u)
	}
}

// reason returns a text for the transcript, with the reason of an event that reports a rejection.
func reason(event any) string {
	switch f := event.(type) {
	case coordinator.MessageDropped:
		return string(f.Reason)
	case agent.MessageDropped:
		return string(f.Reason)
	case round.UpdateRefused:
		return f.Reason.String()
	case agentround.AnnouncementIgnored:
		return string(f.Reason)
	}
	return ""
}

// checkTraining checks that an agent trains at most once per process for a round. The agent must have been drawn, and
// must not have a saved update for this round.
func (c *invariantChecker) checkTraining(p *party, f training.LocalTrainingFinished) {
	at := participation{c.obeyed[p.id].Run, f.Round, p.id}
	if !slices.Contains(c.drawn[f.Round], p.id) {
		c.w.fail("%s trains for round %d but was not drawn for it", p.id, f.Round)
	}
	if c.trainedBy[at] == p.life {
		c.w.fail("%s trains twice for round %d", p.id, f.Round)
	}
	if c.updateSavedAtStart[p.id] == at {
		c.w.fail("%s trains again for round %d although its update was saved", p.id, f.Round)
	}
	c.trainedBy[at] = p.life
}
