package coordinatorstatus

import (
	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/coordinator/meshplan"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/internal/status"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

var _ observe.Observer = (*StatusTracker)(nil)

// Observe implements observe.Observer and updates the parts of the status page and of the table of devices that depend
// on more than one event. The condition board holds the conditions and values that single events show.
func (v *StatusTracker) Observe(event observe.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.observeRoundEvent(event)
	v.observeDeviceEvent(event)
	v.observeModelEvent(event)
}

func (v *StatusTracker) observeRoundEvent(event observe.Event) {
	switch f := event.(type) {
	case meshplan.MeshComputed:
		v.mixingGraph = f.MixingGraph
	case round.EdgeEnded:
		v.recordEdgeEnded(f)
	case host.BrokerLinkChanged:
		v.current.Broker.SetConnected(v.now(), f.IsConnected, f.Err)
	case round.PhaseEntered:
		v.current.Phase, v.current.PhaseSince = string(f.Phase), v.now()
	case round.GatheringExtended:
		v.current.EligibleAgents = f.PresentAgents
	case round.RunFinished:
		v.current.Aggregations, v.current.RunEndReason = uint64(f.ModelVersion), string(f.Reason)
	case round.RoundOpened:
		v.recordRoundOpened(f)
	case round.AgentJoined:
		v.setParticipantState(f.Agent, stateWorking, "")
		d := v.findOrAddDevice(f.Agent)
		v.trainingDeviceByID[f.Agent] = d
		if d.lastJoinedRound != f.Round { // count a round once, even if it repeats after a restart of the coordinator
			d.lastJoinedRound = f.Round
			d.workedRounds++
			v.hasUnsavedChanges = true
		}
	case round.AgentDeclined:
		v.setParticipantState(f.Agent, stateOut, f.Reason.String())
		v.addRefusal(f.Agent, f.Round, "declined", f.Reason.String())
		v.recordFailedTraining(f.Agent)
	case round.UploaderReplaced:
		v.setParticipantState(f.ReplacedAgent, stateOut, "replaced by another agent")
		v.findOrAddParticipant(f.ReplacementAgent)
	case round.UpdateAccepted:
		v.recordAcceptedUpdate(f)
	case round.UpdateRefused:
		if f.Round == wire.RoundID(v.current.Round) {
			v.setParticipantState(f.Agent, stateOut, f.Reason.String())
			v.recordFailedTraining(f.Agent)
		}
		v.addRefusal(f.Agent, f.Round, "refused", f.Reason.String())
	case round.RoundAbandoned:
		v.current.AbandonedRounds++
		v.addRefusal("", f.Round, "abandoned", string(f.Reason))
		clear(v.trainingDeviceByID)
	case round.RoundClosed:
		v.current.AggregatedUpdates += f.AggregatedUpdates
		clear(v.trainingDeviceByID)
	}
}

func (v *StatusTracker) observeModelEvent(event observe.Event) {
	switch f := event.(type) {
	case aggregation.ModelReady:
		v.recordModelReady(f)
	case aggregation.ModelRejected:
		v.rejectedModelReplacementVersion = f.NextVersion
		v.countLeftOutUpdates(f.SuspectAgents...)
	case aggregation.UpdateLeftOut:
		v.addRefusal(f.Agent, f.Round, "left out", string(f.Reason))
		v.countLeftOutUpdates(f.Agent)
	case aggregation.UpdatesExcludedByRule:
		v.countLeftOutUpdates(f.Agents...)
	case aggregation.UpdatesClipped:
		for _, a := range f.Agents {
			v.findOrAddDevice(a).clippedUpdates++
		}
	case aggregation.RepeatedLargeUpdates:
		d := v.findOrAddDevice(f.Agent)
		if d.largeUpdates = nil; f.ConsecutiveUpdates > 0 && f.UsualNorm > 0 {
			d.largeUpdates = &largeUpdates{string(f.Agent), f.ConsecutiveUpdates, f.Norm / f.UsualNorm,
				f.ClippedNorm / f.UsualNorm}
		}
	}
}

func (v *StatusTracker) countLeftOutUpdates(agents ...wire.AgentID) {
	for _, a := range agents {
		v.findOrAddDevice(a).leftOutUpdates++
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
	for _, d := range v.deviceByID {
		d.lastSidelinedRound = 0
	}
	for _, s := range f.SidelinedAgents { // the event lists all sidelined agents
		d := v.findOrAddDevice(s.Agent)
		d.lastSidelinedRound, d.sidelineReason = s.LastSidelinedRound, s.Reason
	}
	v.current.Participants = make([]participant, 0, len(f.Participants))
	clear(v.participantIndexByAgent)
	for _, agent := range f.Participants {
		v.findOrAddParticipant(agent)
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

// rejectedShownVersions is the number of later model versions for which the status page still shows a rejected model.
const rejectedShownVersions = 20

// recordModelReady records a new model version. It also stops showing a rejected model after rejectedShownVersions
// further versions, or in a new run.
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
