package coordinatorstatus

import (
	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/coordinator/meshplan"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/internal/status"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

var _ observe.Observer = (*View)(nil)

// Observe implements observe.Observer. It keeps the parts of the page that combine several events: the round under way,
// the tables of agents, and the last results.
func (v *View) Observe(event observe.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch f := event.(type) {
	case round.PhaseEntered:
		v.current.Phase, v.current.PhaseSince, v.current.ScheduleWait = string(f.Phase), v.now(), nil
	case round.AgentEligible:
		v.current.EligibleAgents = f.EligibleAgents
		delete(v.unfit, f.Agent)
	case round.AgentUnfit:
		v.current.EligibleAgents = f.EligibleAgents
		m := f.DataProblem
		v.unfit[f.Agent] = unfitAgent{string(f.Agent), f.Reason.String(), m.Column, m.Reason, m.ExampleLocation,
			m.UnusableValues, m.TotalValues}
	case round.AgentLeft:
		v.recordAgentLeft(f)
	case round.GatheringExtended:
		v.current.EligibleAgents = f.PresentAgents
	case round.ScheduleWait:
		v.current.ScheduleWait = &scheduleWait{string(f.Reason), f.WindowOpensAt, f.AgentsWithNewRows, f.RequiredAgents,
			f.RequiredNewRows,
			f.WithoutRowCount}
	case round.StopProgressReported:
		v.current.StopProgress = newStopProgress(f)
	case round.RunFinished:
		v.current.Aggregations, v.current.EndReason = uint64(f.Version), string(f.Reason)
	case round.RoundOpened:
		v.recordRoundOpened(f)
	case round.AgentSidelined:
		v.current.EligibleAgents = f.EligibleAgents
		v.sitOut[f.Agent] = sidelinedAgent{string(f.Agent), string(f.Reason), uint64(f.LastSidelinedRound)}
	case round.AgentReadmitted:
		v.current.EligibleAgents = f.EligibleAgents
		delete(v.sitOut, f.Agent)
	case round.AgentJoined:
		v.setParticipantState(f.Agent, stateWorking, "")
	case round.AgentDeclined:
		v.setParticipantState(f.Agent, stateOut, f.Reason.String())
		v.refusal(f.Agent, f.Round, "declined", f.Reason.String())
	case round.UploaderReplaced:
		v.setParticipantState(f.Agent, stateOut, "another agent sends in its place")
		v.participant(f.Replacement)
	case round.UpdateAccepted:
		v.current.Accepted++
		v.setParticipantState(f.Agent, accepted, "").Steps = f.Update.LocalSteps
	case round.UpdateRefused:
		if f.Round == wire.RoundID(v.current.Round) {
			v.setParticipantState(f.Agent, stateOut, f.Reason.String())
		}
		v.refusal(f.Agent, f.Round, "refused", f.Reason.String())
	case round.RoundAbandoned:
		v.current.Abandoned++
		v.refusal("", f.Round, "abandoned", string(f.Reason))
	case round.RoundClosed:
		v.current.AggregatedUpdates += f.AggregatedUpdates
	case round.RolloutBegan:
		r := &rolloutStatus{Released: f.Released.String(), CandidateAgents: f.TrialAgents}
		if was := v.current.Rollout; was != nil {
			r.LastOutcome, r.LastModel = was.LastOutcome, was.LastModel
		}
		v.current.Rollout = r
		if f.Candidate.Present() {
			r.Candidate = f.Candidate.String()
		}
	case round.RolloutEnded:
		v.current.Rollout = &rolloutStatus{Released: f.Released.String(), LastOutcome: string(f.Result),
			LastModel: f.Candidate.String()}
	case coordinator.AgentListChanged:
		v.current.Enrolled = f.ListedAgents
		for _, agent := range f.RemovedAgents {
			delete(v.unfit, agent)
			delete(v.largeUpdatesByAgent, agent)
		}
	case aggregation.ModelReady:
		v.modelReady(f)
	case aggregation.ModelRejected:
		v.rejectedReplacement = f.NextVersion
	case aggregation.RepeatedLargeUpdates:
		delete(v.largeUpdatesByAgent, f.Agent)
		if f.ConsecutiveUpdates > 0 && f.UsualNorm > 0 {
			v.largeUpdatesByAgent[f.Agent] = largeUpdates{string(f.Agent), f.ConsecutiveUpdates, f.Norm / f.UsualNorm,
				f.CountedNorm / f.UsualNorm}
		}
	case coordinator.ModelEvaluated:
		if !f.TooFewAgents { // the last result stays
			v.current.Evaluation = &modelEvaluation{uint64(f.Version), f.Result}
		}
	case host.LinkChanged:
		v.current.Broker.SetConnected(v.now(), f.Up, f.Err)
	case aggregation.UpdateLeftOut:
		v.refusal(f.Agent, f.Round, "left out", string(f.Reason))
	case meshplan.Computed:
		v.current.Mesh = &mesh{f.MixingAgents, len(f.Edges), len(f.ConnectedComponents),
			observe.FiniteOrNil(f.SecondEigenvalue),
			observe.FiniteOrNil(f.EigenvalueRatio)}
	}
}

func (v *View) recordRoundOpened(f round.RoundOpened) {
	v.current.EndReason = ""
	v.current.Round, v.current.Attempt, v.current.Kind, v.current.RoundOpenedAt,
		v.current.EligibleAgents = uint64(f.Round), uint64(f.Attempt), f.Kind.String(),
		v.now(), f.EligibleAgents
	v.current.Aggregations = uint64(f.Version)
	if v.current.EstimatedAgents, v.current.AskedShare = f.ResponseLottery.Agents, 0; v.current.EstimatedAgents > 0 {
		v.current.AskedShare = f.ResponseLottery.Probability()
	}
	clear(v.sitOut)
	for _, s := range f.SidelinedAgents {
		v.sitOut[s.Agent] = sidelinedAgent{string(s.Agent), string(s.Reason), uint64(s.Until)}
	}
	v.current.Participants = make([]participant, 0, len(f.Participants))
	clear(v.participantIndex)
	for _, agent := range f.Participants {
		v.participant(agent)
	}
}

func (v *View) recordAgentLeft(f round.AgentLeft) {
	v.current.EligibleAgents = f.EligibleAgents
	delete(v.unfit, f.Agent)
	if f.Reason != round.LeftRevoked {
		return
	}
	delete(v.sitOut, f.Agent)
	if i, ok := v.participantIndex[f.Agent]; ok && v.current.Participants[i].State != accepted {
		v.setParticipantState(f.Agent, stateOut, string(f.Reason))
	}
}

func (v *View) setParticipantState(agent wire.AgentID, state, why string) *participant {
	p := v.participant(agent)
	p.State, p.OutReason, p.StateAfterSeconds = state, why, v.now().Sub(v.current.RoundOpenedAt).Seconds()
	return p
}

func (v *View) refusal(agent wire.AgentID, r wire.RoundID, what, reason string) {
	v.current.Refusals = status.AppendBounded(v.current.Refusals, status.KeptRefusals, status.Refusal{At: v.now(),
		Agent: string(agent),
		Round: uint64(r), Kind: what, Reason: reason})
}

// rejectedShownVersions is the number of versions for which a rejected model is shown.
const rejectedShownVersions = 20

// modelReady also ends the condition of a rejected model: that takes the version that replaced the rejected model, and
// the versions since then.
func (v *View) modelReady(f aggregation.ModelReady) {
	if v.rejectedReplacement > 0 && (f.Version > v.rejectedReplacement+rejectedShownVersions ||
		f.Version < v.rejectedReplacement) {
		v.rejectedReplacement = 0
		v.board.Resolve(aggregation.ModelRejectedCondition)
	}
	v.current.Aggregations = uint64(f.Version)
	if risk := observe.FiniteOrNil(f.MeanReportedRisk); risk != nil {
		v.current.Losses = status.AppendBounded(v.current.Losses, status.KeptLosses, *risk)
	}
	v.current.Risk, v.current.R2, v.current.Accuracy = nil, nil, nil
	if f.HeldOutScore != nil {
		v.current.Risk, v.current.R2, v.current.Accuracy = observe.FiniteOrNil(f.HeldOutScore.Risk),
			observe.FiniteOrNil(f.HeldOutScore.R2),
			observe.FiniteOrNil(f.HeldOutScore.Accuracy)
	}
}
