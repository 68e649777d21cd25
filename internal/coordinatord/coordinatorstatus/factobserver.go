package coordinatorstatus

import (
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/internal/status"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

var _ observe.Observer = (*View)(nil)

// observeRound reads the events of the round machine.
func (v *View) observeRound(fact observe.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch f := fact.(type) {
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
	case round.RowCountsTooLarge:
		text := ""
		if len(f.Agents) > 0 && !f.Capped {
			text = fmt.Sprintf("more than five times the median number of rows is reported by %s, which decide the "+
				"model: if that is not true, set round.robust or revoke them", observe.JoinNames(f.Agents))
		}
		v.setProblem("rows", text)
	case round.EdgeEnded, round.EdgesJudged: // not shown
	}
}

// Observe implements observe.Observer.
func (v *View) Observe(fact observe.Event) {
	v.observeRound(fact)
	v.observeEnrolment(fact)
	v.mu.Lock()
	defer v.mu.Unlock()
	switch f := fact.(type) {
	case coordinator.AgentListChanged:
		v.current.Enrolled = f.ListedAgents
		for _, agent := range f.RemovedAgents {
			delete(v.unfit, agent)
			delete(v.largeUpdatesByAgent, agent)
		}
	case coordinator.ModelReady:
		v.modelReady(f)
	case coordinator.StatisticsReady:
		v.standardised(f)
	case coordinator.ModelRejected:
		v.modelRejected(f)
	case coordinator.RepeatedLargeUpdates:
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
	case coordinator.RetainedBlobChecked:
		text := ""
		if f.Missing > 0 {
			text = fmt.Sprintf("the broker does not return %d of %d parts of a blob; agents cannot take "+
				"part until it does", f.Missing, f.Parts)
		}
		v.setProblem("blob", text)
	case coordinator.UpdateLeftOut:
		v.refusal(f.Agent, f.Round, "left out", string(f.Reason))
	case coordinator.CloneSeen:
		v.setProblem("clone "+string(f.Agent),
			fmt.Sprintf("two devices use the identity of %s: give one of them an id and a key of its own", f.Agent))
	case coordinator.StateFileRecovered:
		text := fmt.Sprintf("the %s in the state folder was damaged or missing at the start, and was recovered: check "+
			"the disk", f.File)
		if f.Version != f.PreviousVersion {
			text = fmt.Sprintf("model %d in the state folder is lost: the run continues from model %d; check the disk",
				f.PreviousVersion, f.Version)
		}
		v.setProblem("state "+string(f.File), text)
	case coordinator.ModelsNewerThanJournal:
		v.setProblem("models ahead",
			fmt.Sprintf("models up to version %d are on disk, but the journal is at version %d; "+
				"`coordinator run --from %d` begins a run from the newest one", f.Newest, f.JournalVersion, f.Newest))
	case coordinator.ForeignAnnouncementSeen:
		v.setProblem("foreign",
			fmt.Sprintf("at %s an announcement came that is signed with this coordinator's key but was "+
				"not made by it: another coordinator runs with the key, or somebody replays an old message",
				v.now().Format(time.TimeOnly)))
	case coordinator.ForeignMessagesDeleted:
		v.setProblem("retained",
			fmt.Sprintf("at %s %d messages were deleted that nobody reads and the broker retained, "+
				"such as %s: a device, or a stranger at a broker that anybody may use, fills it",
				v.now().Format(time.TimeOnly), f.DeletedTopics, f.ExampleTopic))
	case coordinator.AgentsAhead:
		text := ""
		if f.Agents > 0 {
			text = fmt.Sprintf("%d agents are ahead (run %d, round %d) and do not obey this coordinator: another one "+
				"leads them, or the state folder is an older copy; see `coordinator restore`", f.Agents, f.NewestRun,
				f.NewestRound)
		}
		v.setProblem("ahead", text)
	case coordinator.MeshComputed:
		v.current.Mesh = &mesh{f.MixingAgents, len(f.Edges), len(f.ConnectedComponents),
			status.FiniteOrNil(f.SecondEigenvalue),
			status.FiniteOrNil(f.EigenvalueRatio)}
	case coordinator.MessageAccepted, coordinator.AgentReportReceived, coordinator.AgentRejected,
		coordinator.MachineStarted,
		coordinator.MessageDropped,
		coordinator.UploadStatusChanged, coordinator.UpdatesClipped, coordinator.UpdatesExcludedByRule: // not shown
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

func (v *View) modelRejected(f coordinator.ModelRejected) {
	v.rejectedReplacement = f.NextVersion
	v.setProblem("rejected", fmt.Sprintf("model %d had diverged and was rejected; the run continues from model %d as "+
		"version %d. Largest updates in it: %s. If these devices are honest, lower task.step_size; to go back "+
		"further: coordinator model rollback --to VERSION", f.Version, f.EarlierVersion, f.NextVersion,
		observe.JoinNames(f.Agents)))
}

func (v *View) standardised(f coordinator.StatisticsReady) {
	text := ""
	if len(f.ConstantColumns) > 0 {
		text = fmt.Sprintf("columns are constant on all devices and are not scaled: %s; remove them from "+
			"task.features, or, if they should vary, subtract a constant from them",
			observe.JoinNames(f.ConstantColumns))
	}
	v.setProblem("constant", text)
}

func (v *View) modelReady(f coordinator.ModelReady) {
	if v.rejectedReplacement > 0 && (f.Version > v.rejectedReplacement+rejectedShownVersions ||
		f.Version < v.rejectedReplacement) {
		v.rejectedReplacement = 0
		v.setProblem("rejected", "")
	}
	v.current.Aggregations = uint64(f.Version)
	if risk := status.FiniteOrNil(f.MeanReportedRisk); risk != nil {
		v.current.Losses = status.AppendBounded(v.current.Losses, status.KeptLosses, *risk)
	}
	v.current.Risk, v.current.R2, v.current.Accuracy = nil, nil, nil
	if f.HeldOutScore != nil {
		v.current.Risk, v.current.R2, v.current.Accuracy = status.FiniteOrNil(f.HeldOutScore.Risk),
			status.FiniteOrNil(f.HeldOutScore.R2),
			status.FiniteOrNil(f.HeldOutScore.Accuracy)
	}
}
