package coordinatorstatus

import (
	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/internal/status"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

var _ observe.Observer = (*StatusTracker)(nil)

// Observe implements observe.Observer. It keeps the parts of the page that combine several events: the round under way,
// the tables of agents, and the last results.
func (v *StatusTracker) Observe(event observe.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch f := event.(type) {
	case round.PhaseEntered:
		v.current.Phase, v.current.PhaseSince = string(f.Phase), v.now()
	case round.AgentEligible:
		v.current.EligibleAgents = f.EligibleAgents
		delete(v.unfitAgentByID, f.Agent)
	case round.AgentUnfit:
		v.current.EligibleAgents = f.EligibleAgents
		m := f.DataProblem
		v.unfitAgentByID[f.Agent] = unfitAgent{string(f.Agent), f.Reason.String(), m.Column, m.Reason,
			m.ExampleLocation,
			m.UnusableValues, m.TotalValues}
	case round.AgentLeft:
		v.recordAgentLeft(f)
	case round.GatheringExtended:
		v.current.EligibleAgents = f.PresentAgents
	case round.RunFinished:
		v.current.Aggregations, v.current.RunEndReason = uint64(f.ModelVersion), string(f.Reason)
	case round.RoundOpened:
		v.recordRoundOpened(f)
	case round.AgentSidelined:
		v.current.EligibleAgents = f.EligibleAgents
		v.sidelinedAgentByID[f.Agent] = sidelinedAgent{string(f.Agent), string(f.Reason), uint64(f.LastSidelinedRound)}
	case round.AgentReadmitted:
		v.current.EligibleAgents = f.EligibleAgents
		delete(v.sidelinedAgentByID, f.Agent)
	case round.AgentJoined:
		v.setParticipantState(f.Agent, stateWorking, "")
	case round.AgentDeclined:
		v.setParticipantState(f.Agent, stateOut, f.Reason.String())
		v.addRefusal(f.Agent, f.Round, "declined", f.Reason.String())
	case round.UploaderReplaced:
		v.setParticipantState(f.ReplacedAgent, stateOut, "another agent sends in its place")
		v.findOrAddParticipant(f.ReplacementAgent)
	case round.UpdateAccepted:
		v.current.AcceptedUpdates++
		v.setParticipantState(f.Agent, stateAccepted, "").LocalSteps = f.Update.LocalSteps
	case round.UpdateRefused:
		if f.Round == wire.RoundID(v.current.Round) {
			v.setParticipantState(f.Agent, stateOut, f.Reason.String())
		}
		v.addRefusal(f.Agent, f.Round, "refused", f.Reason.String())
	case round.RoundAbandoned:
		v.current.AbandonedRounds++
		v.addRefusal("", f.Round, "abandoned", string(f.Reason))
	case round.RoundClosed:
		v.current.AggregatedUpdates += f.AggregatedUpdates
	case coordinator.AgentListChanged:
		v.current.EnrolledAgents = f.ListedAgents
		for _, agent := range f.RemovedAgents {
			delete(v.unfitAgentByID, agent)
			delete(v.largeUpdatesByAgent, agent)
		}
	case aggregation.ModelReady:
		v.recordModelReady(f)
	case aggregation.ModelRejected:
		v.rejectedModelReplacementVersion = f.NextVersion
	case aggregation.RepeatedLargeUpdates:
		delete(v.largeUpdatesByAgent, f.Agent)
		if f.ConsecutiveUpdates > 0 && f.UsualNorm > 0 {
			v.largeUpdatesByAgent[f.Agent] = largeUpdates{string(f.Agent), f.ConsecutiveUpdates, f.Norm / f.UsualNorm,
				f.ClippedNorm / f.UsualNorm}
		}
	case host.BrokerLinkChanged:
		v.current.Broker.SetConnected(v.now(), f.IsConnected, f.Err)
	case aggregation.UpdateLeftOut:
		v.addRefusal(f.Agent, f.Round, "left out", string(f.Reason))
	}
}

func (v *StatusTracker) recordRoundOpened(f round.RoundOpened) {
	v.current.RunEndReason = ""
	v.current.Round, v.current.RoundAttempt, v.current.RoundKind, v.current.RoundOpenedAt,
		v.current.EligibleAgents = uint64(f.Round), uint64(f.Attempt), f.Kind.String(),
		v.now(), f.EligibleAgents
	v.current.Aggregations = uint64(f.BaseModelVersion)
	if v.current.EstimatedHelloAgents, v.current.HelloAskedAgentShare = f.ResponseLottery.EstimatedAgents,
		0; v.current.EstimatedHelloAgents > 0 {
		v.current.HelloAskedAgentShare = f.ResponseLottery.AnswerProbability()
	}
	clear(v.sidelinedAgentByID)
	for _, s := range f.SidelinedAgents {
		v.sidelinedAgentByID[s.Agent] = sidelinedAgent{string(s.Agent), string(s.Reason), uint64(s.LastSidelinedRound)}
	}
	v.current.Participants = make([]participant, 0, len(f.Participants))
	clear(v.participantIndexByAgent)
	for _, agent := range f.Participants {
		v.findOrAddParticipant(agent)
	}
}

func (v *StatusTracker) recordAgentLeft(f round.AgentLeft) {
	v.current.EligibleAgents = f.EligibleAgents
	delete(v.unfitAgentByID, f.Agent)
	if f.Reason != round.LeftRevoked {
		return
	}
	delete(v.sidelinedAgentByID, f.Agent)
	if i, ok := v.participantIndexByAgent[f.Agent]; ok && v.current.Participants[i].State != stateAccepted {
		v.setParticipantState(f.Agent, stateOut, string(f.Reason))
	}
}

func (v *StatusTracker) setParticipantState(agent wire.AgentID, state, why string) *participant {
	p := v.findOrAddParticipant(agent)
	p.State, p.OutReason, p.SecondsToState = state, why, v.now().Sub(v.current.RoundOpenedAt).Seconds()
	return p
}

func (v *StatusTracker) addRefusal(agent wire.AgentID, r wire.RoundID, what, reason string) {
	v.current.Refusals = status.AppendBounded(v.current.Refusals, status.KeptRefusals, status.Refusal{At: v.now(),
		Agent: string(agent),
		Round: uint64(r), Kind: what, Reason: reason})
}

// rejectedShownVersions is the number of versions for which a rejected model is shown.
const rejectedShownVersions = 20

// recordModelReady also ends the condition of a rejected model: that takes the version that replaced the rejected
// model, and the versions since then.
func (v *StatusTracker) recordModelReady(f aggregation.ModelReady) {
	if v.rejectedModelReplacementVersion > 0 && (f.Version > v.rejectedModelReplacementVersion+rejectedShownVersions ||
		f.Version < v.rejectedModelReplacementVersion) {
		v.rejectedModelReplacementVersion = 0
		v.board.ResolveCondition(aggregation.ModelRejectedCondition)
	}
	v.current.Aggregations = uint64(f.Version)
	if risk := observe.FiniteOrNil(f.MeanReportedRisk); risk != nil {
		v.current.Losses = status.AppendBounded(v.current.Losses, status.KeptLosses, *risk)
	}
	v.current.HeldOutRisk, v.current.HeldOutR2, v.current.HeldOutAccuracy = nil, nil, nil
	if f.HeldOutScore != nil {
		v.current.HeldOutRisk, v.current.HeldOutR2,
			v.current.HeldOutAccuracy = observe.FiniteOrNil(f.HeldOutScore.Risk),
			observe.FiniteOrNil(f.HeldOutScore.R2),
			observe.FiniteOrNil(f.HeldOutScore.Accuracy)
	}
}
