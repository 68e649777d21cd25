package coordinatorstatus

import (
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/internal/status"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

var _ coordinator.Observer = (*View)(nil)

// ObserveRound implements coordinator.Observer.
func (v *View) ObserveRound(fact round.CoordinatorFact) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch f := fact.(type) {
	case round.PhaseEntered:
		v.is.Phase, v.is.PhaseSince, v.is.Waits = string(f.Phase), v.now(), nil
	case round.AgentCounted:
		v.is.Agents = f.Agents
		delete(v.unfit, f.Agent)
	case round.AgentUnfit:
		v.is.Agents = f.Agents
		m := f.Misfit
		v.unfit[f.Agent] = unfit{string(f.Agent), f.Reason.String(), m.Column, m.Reason, m.Where, m.Bad, m.All}
	case round.AgentLeft:
		v.left(f)
	case round.GatheringExtended:
		v.is.Agents = f.Agents
	case round.RoundWaits:
		v.is.Waits = &waits{string(f.Reason), f.Until, f.Fresh, f.Agents, f.Rows, f.WithoutRowCount}
	case round.StopJudged:
		v.is.Stop = stoppingOf(f)
	case round.RunFinished:
		v.is.Aggregations, v.is.Ended = uint64(f.Version), string(f.Reason)
	case round.RoundOpened:
		v.opened(f)
	case round.AgentSidelined:
		v.is.Agents = f.Agents
		v.sitOut[f.Agent] = sitOut{string(f.Agent), string(f.Reason), uint64(f.Until)}
	case round.AgentReadmitted:
		v.is.Agents = f.Agents
		delete(v.sitOut, f.Agent)
	case round.AgentJoined:
		v.move(f.Agent, working, "")
	case round.AgentDeclined:
		v.move(f.Agent, out, f.Reason.String())
		v.refusal(f.Agent, f.Round, "declined", f.Reason.String())
	case round.UploaderReplaced:
		v.move(f.Agent, out, "another agent sends in its place")
		v.participant(f.By)
	case round.UpdateAccepted:
		v.is.Accepted++
		v.move(f.Agent, accepted, "").Steps = f.Update.LocalSteps
	case round.UpdateRefused:
		if f.Round == wire.RoundID(v.is.Round) {
			v.move(f.Agent, out, f.Reason.String())
		}
		v.refusal(f.Agent, f.Round, "refused", f.Reason.String())
	case round.RoundAbandoned:
		v.is.Abandoned++
		v.refusal("", f.Round, "abandoned", string(f.Reason))
	case round.RoundClosed:
		v.is.Folded += f.Folded
	case round.RolloutBegan:
		r := &rolledOut{Released: f.Released.String(), Agents: f.Agents}
		if was := v.is.Rollout; was != nil {
			r.Last, r.Of = was.Last, was.Of
		}
		v.is.Rollout = r
		if f.Candidate.Present() {
			r.Candidate = f.Candidate.String()
		}
	case round.RolloutEnded:
		v.is.Rollout = &rolledOut{Released: f.Released.String(), Last: string(f.Result), Of: f.Candidate.String()}
	case round.SamplesLarge:
		text := ""
		if len(f.Agents) > 0 && !f.Capped {
			text = fmt.Sprintf("more than five times the median number of rows is reported by %s, which decide the "+
				"model: if that is not true, set round.robust or revoke them", status.Names(f.Agents))
		}
		v.note("rows", text)
	case round.EdgeEnded, round.EdgesJudged: // not shown
	}
}

// Observe implements coordinator.Observer.
func (v *View) Observe(fact coordinator.Fact) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch f := fact.(type) {
	case coordinator.AgentsListed:
		v.is.Enrolled = f.Agents
		for _, agent := range f.Gone {
			delete(v.unfit, agent)
			delete(v.large, agent)
		}
	case coordinator.ModelReady:
		v.modelReady(f)
	case coordinator.StatisticsReady:
		v.standardised(f)
	case coordinator.ModelRejected:
		v.modelRejected(f)
	case coordinator.UpdateLarge:
		delete(v.large, f.Agent)
		if f.Times > 0 && f.Usual > 0 {
			v.large[f.Agent] = large{string(f.Agent), f.Times, f.Norm / f.Usual, f.Counted / f.Usual}
		}
	case coordinator.ModelEvaluated:
		if !f.Few { // the last result stays
			v.is.Evaluation = &evaluated{uint64(f.Version), f.Result}
		}
	case coordinator.LinkChanged:
		v.is.Broker.Change(v.now(), f.Up, f.Err)
	case coordinator.SubscriptionsRefused:
		v.note("refused", status.RefusedProblem(f.Filters))
	case coordinator.BrokerTested:
		v.note("broker", f.Advice())
	case coordinator.StorageFailing:
		v.note("storage", status.StorageProblem(v.now(), f.What, f.Err))
	case coordinator.StorageMended:
		v.note("storage", "")
	case coordinator.BlobChecked:
		text := ""
		if f.Missing > 0 {
			text = fmt.Sprintf("the broker does not return %d of %d parts of a blob; agents cannot take "+
				"part until it does", f.Missing, f.Parts)
		}
		v.note("blob", text)
	case coordinator.UpdateLeftOut:
		v.refusal(f.Agent, f.Round, "left out", string(f.Reason))
	case coordinator.CloneSeen:
		v.note("clone "+string(f.Agent),
			fmt.Sprintf("two devices use the identity of %s: give one of them an id and a key of its own", f.Agent))
	case coordinator.StateMended:
		text := fmt.Sprintf("the %s in the state folder was damaged or missing at the start, and was recovered: check "+
			"the disk", f.File)
		if f.Version != f.Before {
			text = fmt.Sprintf("model %d in the state folder is lost: the run continues from model %d; check the disk",
				f.Before, f.Version)
		}
		v.note("state "+string(f.File), text)
	case coordinator.ModelsAhead:
		v.note("models ahead", fmt.Sprintf("models up to version %d are on disk, but the journal is at version %d; "+
			"`coordinator run --from %d` begins a run from the newest one", f.Newest, f.Version, f.Newest))
	case coordinator.ForeignAnnouncement:
		v.note("foreign", fmt.Sprintf("at %s an announcement came that is signed with this coordinator's key but was "+
			"not made by it: another coordinator runs with the key, or somebody replays an old message",
			v.now().Format(time.TimeOnly)))
	case coordinator.ForeignRetained:
		v.note("retained", fmt.Sprintf("at %s %d messages were deleted that nobody reads and the broker retained, "+
			"such as %s: a device, or a stranger at a broker that anybody may use, fills it",
			v.now().Format(time.TimeOnly), f.Topics, f.Example))
	case coordinator.AgentsAhead:
		text := ""
		if f.Agents > 0 {
			text = fmt.Sprintf("%d agents are ahead (run %d, round %d) and do not obey this coordinator: another one "+
				"leads them, or the state folder is an older copy; see `coordinator restore`", f.Agents, f.Run, f.Round)
		}
		v.note("ahead", text)
	case coordinator.MeshMade:
		v.is.Mesh = &mesh{f.Agents, len(f.Edges), len(f.Parts), status.Number(f.SecondEigenvalue),
			status.Number(f.Alpha)}
	case coordinator.MessageAccepted, coordinator.AgentReported, coordinator.AgentRejected, coordinator.Began,
		coordinator.MessageDropped,
		coordinator.TransfersChanged, coordinator.UpdatesClipped, coordinator.UpdatesPassedOver: // not shown
	}
}

func (v *View) opened(f round.RoundOpened) {
	v.is.Ended = ""
	v.is.Round, v.is.Attempt, v.is.Kind, v.is.Opened, v.is.Agents = uint64(f.Round), uint64(f.Attempt), f.Kind.String(),
		v.now(), f.Agents
	v.is.Aggregations = uint64(f.Version)
	if v.is.Estimated, v.is.Asked = f.Responding.Agents, 0; v.is.Estimated > 0 {
		v.is.Asked = f.Responding.Share()
	}
	clear(v.sitOut)
	for _, s := range f.SitOut {
		v.sitOut[s.Agent] = sitOut{string(s.Agent), string(s.Reason), uint64(s.Until)}
	}
	v.is.Participants = make([]participant, 0, len(f.Participants))
	clear(v.place)
	for _, agent := range f.Participants {
		v.participant(agent)
	}
}

func (v *View) left(f round.AgentLeft) {
	v.is.Agents = f.Agents
	delete(v.unfit, f.Agent)
	if f.Reason != round.LeftRevoked {
		return
	}
	delete(v.sitOut, f.Agent)
	if i, ok := v.place[f.Agent]; ok && v.is.Participants[i].State != accepted {
		v.move(f.Agent, out, string(f.Reason))
	}
}

func (v *View) move(agent wire.AgentID, state, why string) *participant {
	p := v.participant(agent)
	p.State, p.Why, p.After = state, why, v.now().Sub(v.is.Opened).Seconds()
	return p
}

func (v *View) refusal(agent wire.AgentID, r wire.RoundID, what, reason string) {
	v.is.Refusals = status.Keep(v.is.Refusals, status.KeptRefusals, status.Refusal{At: v.now(), Agent: string(agent),
		Round: uint64(r), What: what, Reason: reason})
}

// rejectedShown is the number of versions for which a rejected model is shown.
const rejectedShown = 20

func (v *View) modelRejected(f coordinator.ModelRejected) {
	v.rejected = f.Next
	v.note("rejected", fmt.Sprintf("model %d had diverged and was rejected; the run continues from model %d as "+
		"version %d. Largest updates in it: %s. If these devices are honest, lower task.step_size; to go back "+
		"further: coordinator model rollback --to VERSION", f.Version, f.Earlier, f.Next, status.Names(f.Agents)))
}

func (v *View) standardised(f coordinator.StatisticsReady) {
	text := ""
	if len(f.Constant) > 0 {
		text = fmt.Sprintf("columns are constant on all devices and are not scaled: %s; remove them from "+
			"task.features, or, if they should vary, subtract a constant from them", status.Names(f.Constant))
	}
	v.note("constant", text)
}

func (v *View) modelReady(f coordinator.ModelReady) {
	if v.rejected > 0 && (f.Version > v.rejected+rejectedShown || f.Version < v.rejected) {
		v.rejected = 0
		v.note("rejected", "")
	}
	v.is.Aggregations = uint64(f.Version)
	if risk := status.Number(f.Risk); risk != nil {
		v.is.Losses = status.Keep(v.is.Losses, status.KeptLosses, *risk)
	}
	v.is.Risk, v.is.R2, v.is.Accuracy = nil, nil, nil
	if f.Score != nil {
		v.is.Risk, v.is.R2, v.is.Accuracy = status.Number(f.Score.Risk), status.Number(f.Score.R2),
			status.Number(f.Score.Accuracy)
	}
}
