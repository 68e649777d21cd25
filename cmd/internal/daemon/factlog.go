package daemon

import (
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/rollout"
	"github.com/fedmesh/fedmesh/wire"
)

// agentLog logs an agent's facts. The MQTT session itself logs the state of the link.
type agentLog struct{ *slog.Logger }

// Observe implements agent.Observer.
func (l agentLog) Observe(fact agent.Fact) {
	switch f := fact.(type) {
	case agent.SubscriptionsRefused:
		subscriptionsRefused(l.Logger, slices.Concat(f.Filters, f.Site))
	case agent.BrokerTested:
		selfTested(l.Logger, f.SelfTested)
	case agent.StorageFailing:
		storageFailing(l.Logger, f.What, f.Err)
	case agent.StateLost:
		l.Error("a file in the state folder cannot be used; the agent goes on without it: "+f.Without, "file", f.File,
			"err", f.Err)
	case agent.BootRaised:
		l.Warn("an earlier start of this agent had a higher number: the counter of starts was lost or restored from "+
			"an older copy, and is raised", "from", f.From, "to", f.To)
	case agent.StorageMended:
		l.Info(storageMended)
	case agent.DeviceJudged:
		l.deviceJudged(f)
	case agent.CloneSeen:
		l.cloneSeen(f)
	case agent.MessageDropped:
		l.Warn("message dropped", "kind", f.Kind, "reason", f.Reason, "err", f.Err)
	case agent.DataLoaded:
		l.dataLoaded(f)
	case agent.UpdateSettled:
		if f.Fate != wire.FateFolded {
			l.Info("an update is not in the model", "round", f.Round, "fate", f.Fate)
		}
	case agent.Trained:
		l.Info("trained", "round", f.Round, "local_steps", f.LocalSteps, "because", f.Sizing, "step_time", f.StepTime,
			"risk_before", short(f.RiskBefore), "risk_after", short(f.RiskAfter), "took", f.Took)
		if s := f.Held; s != nil {
			l.Info("base model scored on held-out rows", "round", f.Round, "version", f.Version, "rows", s.Samples,
				"risk", short(s.Risk), "r2", short(s.R2), "accuracy", short(s.Accuracy))
		}
		if s := f.Mixed; s != nil {
			l.Info("mixed with the neighbours", "round", f.Round, "flows", s.Flows, "late", s.Late,
				"skipped", s.Skipped,
				"unreconciled", s.Unreconciled, "took", f.MixedFor)
		}
	case agent.ModelJudged:
		l.modelJudged(f)
	case agent.ModelInUse:
		l.Info("predictions are made with another model", "run", f.Run, "version", f.Version, "task", f.Task,
			"pinned", f.Pinned)
	case agent.Predicted:
		l.predicted(f)
	case agent.ModelHookFailed:
		l.Error("predict.hook failed; the model is in use nevertheless", "err", f.Err)
	case agent.BlockBegan:
		l.Info("mixing continues without the server", "block", f.Block, "neighbours", f.Neighbors,
			"begins_with", f.From)
	case agent.NeighborsFound:
		l.Info("neighbours found", "neighbours", f.Neighbors, "agents_in_cell", f.Others)
	case agent.TrainingFailed:
		l.Error("no update for this round", "round", f.Round, "err", f.Err)
	case agent.DataCollected:
		l.dataCollected(f)
	case agent.BudgetUsed, agent.LinkChanged, agent.ModelFetched: // not logged
	}
}

// ObserveRound implements agent.Observer.
func (l agentLog) ObserveRound(fact round.AgentFact) {
	switch f := fact.(type) {
	case round.BudgetShort:
		l.Warn("the rest of the month's byte budget is too small for a round", "round", f.Round, "bytes", f.Bytes,
			"left", f.Left)
	case round.AnnouncementIgnored:
		l.Warn("announcement ignored", "place", f.Order, "reason", f.Reason)
	case round.NotUnderstood:
		l.Warn("this agent takes no part: it does not know what the coordinator's message needs; update the agent",
			"message", f.Message, "err", f.Err)
	case round.WorkStarted:
		l.Debug("invited", "round", f.Round, "kind", f.Kind, "left", f.Left)
	case round.WorkEnded:
		l.workEnded(f)
	case round.AnnouncementObeyed, round.TaskPrepared: // not logged
	}
}

func (l agentLog) predicted(f agent.Predicted) {
	if f.Err != nil {
		l.Error("there are no forecasts", "lost", f.Lost, "err", f.Err)
	}
	if f.Mended {
		l.Info("there are forecasts again")
	}
	if f.Anomalies > 0 {
		l.Warn("residuals are beyond the usual", "rows", f.Made, "anomalies", f.Anomalies)
	}
}

func (l agentLog) modelJudged(f agent.ModelJudged) {
	attrs := []any{"run", f.Run, "version", f.Version, "rows", f.Rows, "risk", short(f.Risk),
		"risk_in_use", short(f.InUse)}
	switch f.Result {
	case agent.ModelTaken:
		l.Info("a new model is taken", attrs...)
	case agent.ModelFailed:
		l.Error("a new model could not be taken; it is tried again", append(attrs, "err", f.Err)...)
	case agent.ModelWorse, agent.ModelNotFinite, agent.ModelBlind, agent.ModelPinned:
		l.Warn("a new model is not taken", append(attrs, "reason", f.Result)...)
	}
}

func (l agentLog) cloneSeen(f agent.CloneSeen) {
	does := "this one stays connected"
	if f.Pause > 0 {
		does = "this one disconnects for " + f.Pause.Round(time.Second).String()
	}
	l.Error("another device has the identity of this agent: give one of them an id and a key of its own; "+does,
		"starts", fmt.Sprintf("%d (%016x, here) and %d (%016x)", f.Boot, f.Nonce, f.OtherBoot, f.OtherNonce))
}

func (l agentLog) workEnded(f round.WorkEnded) {
	attrs := []any{"round", f.Round, "kind", f.Kind, "result", f.Result}
	switch f.Result {
	case round.WorkRefused:
		l.Warn("round ended", append(attrs, "reason", f.Refused)...)
	case round.WorkDeclined:
		l.Warn("round ended", append(attrs, "reason", f.Declined)...)
	default:
		l.Info("round ended", attrs...)
	}
}

// coordinatorLog logs the coordinator's facts.
type coordinatorLog struct{ *slog.Logger }

// Observe implements coordinator.Observer.
func (l coordinatorLog) Observe(fact coordinator.Fact) {
	switch f := fact.(type) {
	case coordinator.SubscriptionsRefused:
		subscriptionsRefused(l.Logger, f.Filters)
	case coordinator.BrokerTested:
		selfTested(l.Logger, f.SelfTested)
	case coordinator.StorageFailing:
		storageFailing(l.Logger, f.What, f.Err)
	case coordinator.StorageMended:
		l.Info(storageMended)
	case coordinator.CloneSeen:
		l.Error("two devices use the identity of one agent: give one of them an id and a key of its own",
			"agent", f.Agent,
			"starts", fmt.Sprintf("%d (%016x) and %d (%016x)", f.Boots[0], f.Nonces[0], f.Boots[1], f.Nonces[1]))
	case coordinator.Began:
		l.Info("rounds begin", "rule", f.Rule, "server_optimizer", f.ServerOptimizer)
		if f.Raised {
			l.Info("the epoch is raised: agents obey this coordinator, even if another one has announced a later round",
				"epoch", f.Epoch)
		}
	case coordinator.ForeignAnnouncement:
		l.Error("an announcement is signed with this coordinator's key, but this coordinator did not make it: another "+
			"coordinator runs with the key and a copy of the state folder, or somebody replays an old message; stop "+
			"the other coordinator", "foreign", f.Foreign, "own", f.Own)
	case coordinator.AgentsAhead:
		l.agentsAhead(f)
	case coordinator.BlobChecked:
		l.blobChecked(f)
	case coordinator.MessageDropped:
		l.Warn("message dropped", "kind", f.Kind, "agent", f.Agent, "reason", f.Reason, "err", f.Err)
	case coordinator.StateMended:
		l.stateMended(f)
	case coordinator.ModelsAhead:
		l.Warn("models on disk are newer than the journal `run`, which may have been restored from an older copy; the "+
			"models are kept: `coordinator run --from VERSION` begins a run from one of them",
			"journal_version", f.Version, "newest_version", f.Newest)
	case coordinator.StatisticsReady:
		l.standardised(f)
	case coordinator.UpdateLeftOut:
		l.Warn("an update is left out of the model: its device is broken or dishonest, or its data differ much from "+
			"the others'",
			"round", f.Round, "agent", f.Agent, "reason", f.Reason, "norm", short(f.Norm), "usual", short(f.Usual))
	case coordinator.ModelReady:
		l.modelReady(f)
	case coordinator.MeshMade:
		l.meshMade(f)
	case coordinator.AgentReported, coordinator.AgentsListed, coordinator.LinkChanged,
		coordinator.TransfersChanged: // not logged
	}
}

// unfit logs why an agent cannot do the task, with what it tells of its data.
func (l coordinatorLog) unfit(f round.AgentUnfit) {
	about := []any{"agent", f.Agent, "reason", f.Reason}
	if m := f.Misfit; m != (wire.Misfit{}) {
		about = append(about, "column", m.Column, "why", m.Reason, "bad", m.Bad, "of", m.All, "where", m.Where)
	}
	l.Warn("agent cannot do the task", about...)
}

// ObserveRound implements coordinator.Observer.
func (l coordinatorLog) ObserveRound(fact round.CoordinatorFact) {
	switch f := fact.(type) {
	case round.AgentCounted:
		l.Info("agent present", "agent", f.Agent, "rows", f.Samples, "agents", f.Agents)
	case round.AgentUnfit:
		l.unfit(f)
	case round.AgentLeft:
		l.Info("agent left", "agent", f.Agent, "reason", f.Reason, "agents", f.Agents)
	case round.AgentSidelined:
		l.Warn("agent failed in the round and sits out the next draws", "agent", f.Agent, "round", f.Round,
			"reason", f.Reason, "draws", f.Draws,
			"until_round", f.Until, "agents", f.Agents)
	case round.AgentReadmitted:
		l.readmitted(f)
	case round.SamplesCapped:
		l.Warn("agents report more than ten times the median number of rows; their weights are capped there",
			"round", f.Round, "agents", f.Agents, "rows", f.Most)
	case round.GatheringExtended:
		l.Warn("too few agents to begin a round; waiting for more", "agents", f.Agents, "minimum", f.Minimum)
	case round.RoundOpened:
		l.Info("round opened", "round", f.Round, "attempt", f.Attempt, "kind", f.Kind, "agents", f.Agents,
			"participants", len(f.Participants))
	case round.AgentDeclined:
		l.Warn("agent declined", "round", f.Round, "agent", f.Agent, "reason", f.Reason)
	case round.UploaderReplaced:
		l.Info("agent will not send its update; another one sends in its place", "round", f.Round, "agent", f.Agent,
			"by", f.By)
	case round.UpdateAccepted:
		l.Debug("update accepted", "round", f.Round, "agent", f.Agent, "local_steps", f.Update.LocalSteps,
			"norm", short(f.Norm), "after", f.After)
	case round.UpdateRefused:
		l.Warn("update refused", "round", f.Round, "agent", f.Agent, "reason", f.Reason)
	case round.RoundClosed:
		l.closed(f)
	case round.RoundAbandoned:
		l.abandoned(f)
	case round.RolloutBegan:
		l.rolloutBegan(f)
	case round.RolloutEnded:
		l.rolloutEnded(f)
	case round.RunFinished:
		l.Info("run finished", "version", f.Version)
	case round.AgentJoined, round.PhaseEntered: // not logged
	}
}

func (l coordinatorLog) rolloutBegan(f round.RolloutBegan) {
	attrs := []any{"model", f.Candidate, "released", f.Released, "agents", f.Agents}
	switch {
	case f.Resumed:
		l.Info("agents are told which model to predict with", attrs...)
		return
	case f.Agents < f.Least:
		l.Warn("a model is rolled out to fewer agents than predict.devices, which decide; it is withdrawn unless more "+
			"come: raise predict.rollout", append(attrs, "predict.devices", f.Least)...)
		return
	}
	l.Info("a model is rolled out to a share of the agents", attrs...)
}

func (l coordinatorLog) rolloutEnded(f round.RolloutEnded) {
	attrs := []any{"model", f.Candidate, "agents", f.Agents, "judged", f.Judged, "residuals_ratio", short(f.Ratio)}
	switch f.Result {
	case rollout.First:
		l.Info("the first model is released to all agents", "model", f.Candidate)
	case rollout.Widened:
		l.Info("a model is released to all agents", attrs...)
	case rollout.Worse:
		l.Error("a model is withdrawn: its residuals are larger than those of the released one, or most agents refuse "+
			"it; agents predict with the released one until a newer model is better",
			append(attrs, "released", f.Released)...)
	case rollout.NoReports:
		l.Warn("a model is withdrawn: too few agents have judged it in time; agents predict with the released one",
			append(attrs, "released", f.Released)...)
	}
}

func (l coordinatorLog) readmitted(f round.AgentReadmitted) {
	if f.Early {
		l.Warn("agent may be drawn again early, because too few others are present", "agent", f.Agent,
			"round", f.Round, "agents", f.Agents)
		return
	}
	l.Info("agent may be drawn again", "agent", f.Agent, "round", f.Round, "agents", f.Agents)
}

func (l coordinatorLog) stateMended(f coordinator.StateMended) {
	attrs := []any{"file", f.File, "damage", f.Damage}
	if f.Aside != "" {
		attrs = append(attrs, "moved_to", f.Aside)
	}
	switch {
	case f.Version < f.Before:
		l.Error("the run's model is lost, so the run continues from an older one; check the disk",
			append(attrs, "lost_version", f.Before, "version", f.Version)...)
	case f.Version > f.Before:
		l.Error("the run's model and all older ones are lost, so the run continues from a newer one; check the disk",
			append(attrs, "lost_version", f.Before, "version", f.Version)...)
	default:
		l.Error("a file of the state folder was damaged or missing; its content was recovered, nothing is lost; "+
			"check the disk", attrs...)
	}
}

func (l coordinatorLog) agentsAhead(f coordinator.AgentsAhead) {
	if f.Agents == 0 {
		l.Info("no agent is ahead of this coordinator any more")
		return
	}
	l.Warn("agents are ahead of this coordinator and do not obey it: another coordinator leads them, or this state "+
		"folder is an older copy; to continue from this copy, stop the coordinator and run `coordinator restore`",
		"agents", f.Agents, "run", f.Run, "round", f.Round)
}

func (l coordinatorLog) blobChecked(f coordinator.BlobChecked) {
	attrs := []any{"blob", f.Blob.Topic(), "parts", f.Parts, "missing", f.Missing, "again_in", f.Again}
	switch {
	case f.Missing == 0:
		l.Debug("the broker returns the whole blob", "blob", f.Blob.Topic(), "parts", f.Parts, "took", f.Took)
	case f.Refused:
		l.Error("the broker does not let the coordinator read a blob back, so nobody knows whether agents can: let "+
			"the coordinator read and write m/# (`coordinator acl` writes the rules for Mosquitto)", attrs...)
	default:
		l.Error("the broker does not return all parts of a blob, so agents cannot fetch it: let the broker retain "+
			"messages of 64 KiB, as many as there are parts, and let the coordinator read and write m/#", attrs...)
	}
}

func (l coordinatorLog) standardised(f coordinator.StatisticsReady) {
	l.Info("columns standardised", "rows", f.Rows, "columns", f.Columns)
	for _, a := range f.Far {
		l.Warn("an agent's data lie far from the others': another unit, a broken sensor, or false data; the "+
			"standardisation disregards them", "agent", a.Agent, "column", a.Column, "deviations", short(a.Deviations))
	}
}

func (l coordinatorLog) meshMade(f coordinator.MeshMade) {
	switch {
	case f.Err != nil:
		l.Error("there are no edges between the agents, so they do not mix in this round", "round", f.Round,
			"err", f.Err)
	case len(f.Nowhere) > 0:
		l.Warn("agents without a place cannot mix: give them d2d.place, or take the edges from a file",
			"round", f.Round, "agents", f.Nowhere)
	}
	if len(f.Parts) > 1 {
		l.Warn("the graph of the agents is not connected: each part mixes by itself", "round", f.Round,
			"parts", f.Parts)
	}
	l.Info("agents mix", "round", f.Round, "agents", f.Agents, "edges", len(f.Edges),
		"second_eigenvalue", short(f.SecondEigenvalue), "alpha", short(f.Alpha))
}

func (l coordinatorLog) modelReady(f coordinator.ModelReady) {
	attrs := []any{"version", f.Version, "hash", f.Hash.Topic()}
	if !math.IsNaN(f.Risk) {
		attrs = append(attrs, "risk", short(f.Risk))
	}
	if f.Score != nil && !math.IsNaN(f.Score.R2) {
		attrs = append(attrs, "r2", short(f.Score.R2))
	}
	if f.Score != nil && !math.IsNaN(f.Score.Accuracy) {
		attrs = append(attrs, "accuracy", short(f.Score.Accuracy))
	}
	l.Info("model ready", attrs...)
}

func (l coordinatorLog) closed(f round.RoundClosed) {
	attrs := []any{"round", f.Round, "kind", f.Kind, "accepted", f.Accepted, "selected", f.Selected, "took", f.Took}
	if f.Kind == wire.KindTraining {
		attrs = append(attrs, "version", f.Version)
	}
	if len(f.Missing) > 0 {
		attrs = append(attrs, "missing", f.Missing)
	}
	l.Info("round closed", attrs...)
}

func (l coordinatorLog) abandoned(f round.RoundAbandoned) {
	attrs := []any{"round", f.Round, "reason", f.Reason, "accepted", f.Accepted, "selected", f.Selected, "took", f.Took}
	if len(f.Missing) > 0 {
		attrs = append(attrs, "missing", f.Missing)
	}
	if f.Err != nil {
		attrs = append(attrs, "err", f.Err)
	}
	l.Warn("round abandoned", attrs...)
}

// subscriptionsRefused logs the subscriptions that the broker refuses, and possible causes.
func subscriptionsRefused(l *slog.Logger, filters []string) {
	if len(filters) == 0 {
		l.Info("the broker accepts all subscriptions")
		return
	}
	l.Error("the broker refuses subscriptions that this program needs, and is asked again: "+mqtt.RefusalCauses,
		"topics", filters)
}

const storageMended = "the state folder can be written again"

func storageFailing(l *slog.Logger, what string, err error) {
	l.Error("cannot "+what+"; trying again until it succeeds", "err", err)
}

// selfTested logs the result of a self-test, with what to change at the broker if it failed.
func selfTested(l *slog.Logger, r mqtt.SelfTested) {
	if advice := r.Advice(); advice != "" {
		l.Error(advice)
		return
	}
	l.Debug("the broker carries the largest messages", "bytes", r.Bytes)
}

// short rounds a number for people.
func short(x float64) float64 {
	if x == 0 || math.IsNaN(x) || math.IsInf(x, 0) {
		return x
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(x))))
	return math.Round(x*scale) / scale
}

func (l agentLog) dataLoaded(f agent.DataLoaded) {
	switch {
	case f.Problem != nil && f.Renewed != "":
		l.Error("the local data fit the task no more; the agent takes no part in it: "+f.Renewed, "task", f.Task,
			"err", f.Problem)
	case f.Problem != nil:
		l.Error("the local data do not fit the task; the agent takes no part in it", "task", f.Task, "err", f.Problem)
	case f.Renewed != "":
		l.Warn("local data have changed: "+f.Renewed, "task", f.Task, "rows", f.Rows, "before", f.Before,
			"took", f.Took)
	case f.Before > 0:
		l.Info("local data have grown", "task", f.Task, "rows", f.Rows, "before", f.Before, "took", f.Took)
	default:
		l.Info("local data fit the task", "task", f.Task, "rows", f.Rows, "took", f.Took)
	}
}

// dataCollected logs the first value of an input, the tenth, the hundredth … that is not used for a reason.
func (l agentLog) dataCollected(f agent.DataCollected) {
	before := map[string]map[data.Reason]uint64{}
	for _, c := range f.Before.Columns {
		before[c.Name] = c.Unused
	}
	for _, c := range f.Columns {
		for _, why := range slices.Sorted(maps.Keys(c.Unused)) {
			n, was := c.Unused[why], before[c.Name][why]
			if len(strconv.FormatUint(n, 10)) > len(strconv.FormatUint(was, 10)) || n > 0 && was == 0 {
				l.Warn("values of an input are not used", "input", c.Name, "reason", why, "values", n, "used", c.Used,
					"last", c.Where)
			}
		}
	}
}

// deviceJudged logs when a rule for this device stops the work, and when the work may go on.
func (l agentLog) deviceJudged(f agent.DeviceJudged) {
	switch barred := f.Before.Rule != "" && !f.Before.May(); {
	case !f.May() && (!barred || f.Rule != f.Before.Rule):
		l.Info("a rule for this device stops its work", "rule", f.Rule)
	case f.May() && barred:
		l.Info("the rules for this device allow work again", "share_of_local_steps", short(f.Share))
	}
}
