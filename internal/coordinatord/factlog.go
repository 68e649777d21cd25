package coordinatord

import (
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/rollout"
	"github.com/fedmesh/fedmesh/wire"
)

// coordinatorLog logs the coordinator's facts.
type coordinatorLog struct {
	*slog.Logger
	risks *riskMonitor
}

// Observe implements observe.Observer.
func (l coordinatorLog) Observe(fact observe.Event) {
	l.observeRound(fact)
	switch f := fact.(type) {
	case coordinator.CloneSeen:
		l.Error("two devices use the identity of one agent: give one of them an id and a key of its own",
			"agent", f.Agent,
			"starts", fmt.Sprintf("%d (%016x) and %d (%016x)", f.BootEpochs[0], f.Nonces[0], f.BootEpochs[1],
				f.Nonces[1]))
	case coordinator.AgentRejected:
		l.Warn("messages of a device are rejected", "agent", f.Agent, "reason", f.Reason, "do", rejectionAdvice(f))
	case coordinator.MachineStarted:
		l.Info("rounds begin", "rule", f.AggregationRule, "server_optimizer", f.ServerOptimizer)
		if f.EpochRaised {
			l.Info("the epoch is raised: agents obey this coordinator, even if another one has announced a later round",
				"epoch", f.Epoch)
		}
	case coordinator.ForeignAnnouncementSeen:
		l.Error("an announcement is signed with this coordinator's key, but this coordinator did not make it: another "+
			"coordinator runs with the key and a copy of the state folder, or somebody replays an old message; stop "+
			"the other coordinator", "foreign", f.Foreign, "own", f.Own)
	case coordinator.ForeignMessagesDeleted:
		l.Warn("messages that nobody reads were retained at the broker, and are deleted: a device, or a stranger at a "+
			"broker that anybody may use, fills it", "topics", f.DeletedTopics, "example", f.ExampleTopic, "agents",
			f.Agents)
	case coordinator.AgentsAhead:
		l.agentsAhead(f)
	case coordinator.RetainedBlobChecked:
		l.blobChecked(f)
	case coordinator.StateFileRecovered:
		l.logStateRecovery(f)
	case coordinator.ModelsNewerThanJournal:
		l.Warn("models on disk are newer than the journal `run`, which may have been restored from an older copy; the "+
			"models are kept: `coordinator run --from VERSION` begins a run from one of them",
			"journal_version", f.JournalVersion, "newest_version", f.Newest)
	case coordinator.StatisticsReady:
		l.logStatistics(f)
	case coordinator.ModelEvaluated:
		l.logEvaluation(f)
	case coordinator.UpdateLeftOut:
		l.Warn("an update is left out of the model: its device is broken or dishonest, or its data differ much from "+
			"the others'",
			"round", f.Round, "agent", f.Agent, "reason", f.Reason, "norm", observe.Rounded(f.Norm), "usual",
			observe.Rounded(f.UsualNorm))
	case coordinator.RepeatedLargeUpdates:
		l.logLargeUpdates(f)
	case coordinator.ModelRejected:
		l.Warn("model rejected: it has diverged; check the devices named here, or lower the step size if they are "+
			"honest", "version", f.Version, "continues_from", f.EarlierVersion, "as", f.NextVersion, "median_risk",
			observe.Rounded(f.MedianReportedRisk),
			"agents", f.Agents, "round", f.Round)
	case coordinator.UpdatesExcludedByRule:
		l.Info("the rule has left updates out, as it does in each round", "round", f.Round, "rule", f.Rule,
			"agents", f.Agents)
	case coordinator.UpdatesClipped:
		l.Info("updates count as if they were no longer than allowed", "round", f.Round, "reason", f.Reason,
			"agents", f.Agents, "longest", observe.Rounded(f.LongestNorm), "most", observe.Rounded(f.MaxNorm))
	case coordinator.ModelReady:
		l.modelReady(f)
	case coordinator.MeshComputed:
		l.meshMade(f)
	case coordinator.MessageAccepted, coordinator.AgentReportReceived, coordinator.AgentListChanged,
		coordinator.UploadStatusChanged: // not logged
	}
}

// logLargeUpdates logs an agent with unusually large updates: at the third one in a row, and then each time their
// number has doubled.
func (l coordinatorLog) logLargeUpdates(f coordinator.RepeatedLargeUpdates) {
	if f.ConsecutiveUpdates == 0 {
		l.Info("updates are as large as usual again", "agent", f.Agent, "round", f.Round)
		return
	}
	if f.ConsecutiveUpdates != 3 && f.ConsecutiveUpdates&(f.ConsecutiveUpdates-1) != 0 {
		return
	}
	l.Warn("unusually large updates: the device has unusual data or is dishonest", "agent", f.Agent, "round", f.Round,
		"in_a_row", f.ConsecutiveUpdates, "norm", observe.Rounded(f.Norm), "usual", observe.Rounded(f.UsualNorm),
		"counted",
		observe.Rounded(f.CountedNorm),
		"undo", fmt.Sprintf("coordinator model rollback --to %d", f.SinceVersion))
}

// rejectionAdvice says what has a device heard.
func rejectionAdvice(f coordinator.AgentRejected) string {
	switch f.Reason {
	case wire.RejectedUnlisted:
		return "add its id and public key to identity.agents_file, and reload"
	case wire.RejectedKey:
		return "if it is a new device under this id, put its public key into identity.agents_file, and reload"
	case wire.RejectedBehind:
		return fmt.Sprintf("if its state folder was lost: coordinator devices reset %s", f.Agent)
	case wire.RejectedClone:
		return "give one of the two devices an id and a key of its own"
	}
	return ""
}

// edgeEnded logs why two agents do not mix.
func (l coordinatorLog) edgeEnded(f round.EdgeEnded) {
	why := "an edge is left out: the parameters of its ends are too far apart; one of the two devices lies, or its " +
		"data differ much from the others'"
	if f.Edge.Reason == wire.EndStill {
		why = "an edge is left out: by its neighbours, one end does not move as an agent that mixes; its device lies"
	}
	l.Warn(why, "round", f.Round, "agent", f.Edge.A, "neighbour", f.Edge.B, "reason", f.Edge.Reason,
		"distance", observe.Rounded(f.MeanDistance), "usual", observe.Rounded(f.MedianDistance), "until_round",
		f.Edge.Until)
}

// logUnfitAgent logs why an agent cannot do the task, with what it tells of its data.
func (l coordinatorLog) logUnfitAgent(f round.AgentUnfit) {
	about := []any{"agent", f.Agent, "reason", f.Reason}
	m := f.DataProblem
	text := func(key, value string) {
		if value != "" {
			about = append(about, key, value)
		}
	}
	text("column", m.Column)
	text("why", m.Reason)
	if m.TotalValues > 0 {
		about = append(about, "bad", m.UnusableValues, "of", m.TotalValues)
	}
	text("where", m.ExampleLocation)
	l.Warn("agent cannot do the task", about...)
}

// observeRound reads the events of the round machine.
func (l coordinatorLog) observeRound(fact observe.Event) {
	switch f := fact.(type) {
	case round.AgentEligible:
		l.Info("agent present", "agent", f.Agent, "rows", f.Samples, "agents", f.EligibleAgents)
	case round.AgentUnfit:
		l.logUnfitAgent(f)
	case round.AgentLeft:
		l.Info("agent left", "agent", f.Agent, "reason", f.Reason, "agents", f.EligibleAgents)
	case round.AgentSidelined:
		l.Warn("agent failed in the round and sits out the next draws", "agent", f.Agent, "round", f.Round,
			"reason", f.Reason, "draws", f.DrawsSatOut,
			"until_round", f.LastSidelinedRound, "agents", f.EligibleAgents)
	case round.AgentReadmitted:
		l.readmitted(f)
	case round.EdgeEnded:
		l.edgeEnded(f)
	case round.RowCountsTooLarge:
		if len(f.Agents) > 0 {
			l.Warn("agents report more than five times the median number of rows", "round", f.Round,
				"agents", f.Agents, "rows", f.RowLimit, "weights_capped", f.Capped)
		}
	case round.GatheringExtended:
		l.Warn("too few agents to begin a round; waiting for more", "agents", f.PresentAgents, "minimum", f.Minimum)
	case round.RoundOpened:
		l.Info("round opened", "round", f.Round, "attempt", f.Attempt, "kind", f.Kind, "agents", f.EligibleAgents,
			"participants", len(f.Participants))
	case round.AgentDeclined:
		l.Warn("agent declined", "round", f.Round, "agent", f.Agent, "reason", f.Reason)
	case round.UploaderReplaced:
		l.Info("agent will not send its update; another one sends in its place", "round", f.Round, "agent", f.Agent,
			"by", f.Replacement)
	case round.UpdateAccepted:
		l.Debug("update accepted", "round", f.Round, "agent", f.Agent, "local_steps", f.Update.LocalSteps,
			"norm", observe.Rounded(f.Norm), "after", f.SinceAnnouncement)
	case round.UpdateRefused:
		l.Warn("update refused", "round", f.Round, "agent", f.Agent, "reason", f.Reason)
	case round.RoundClosed:
		l.logRoundClosed(f)
	case round.RoundAbandoned:
		l.abandoned(f)
	case round.RolloutBegan:
		l.rolloutBegan(f)
	case round.RolloutEnded:
		l.rolloutEnded(f)
	case round.RunFinished:
		l.Info("run finished", "version", f.Version, "reason", f.Reason,
			"to_continue", "coordinator task set KEY=VALUE")
	case round.ScheduleWait:
		l.logScheduleWait(f)
	case round.AgentJoined, round.EdgesJudged, round.PhaseEntered, round.StopProgressReported: // not logged
	}
}

func (l coordinatorLog) logScheduleWait(f round.ScheduleWait) {
	switch {
	case f.Reason == round.WaitWindow:
		l.Info("rounds rest until the next window of round.schedule", "opens", f.WindowOpensAt.Format(time.RFC3339))
	case f.Resumed:
		l.Debug("waiting for new rows", "agents", f.AgentsWithNewRows, "wanted", f.RequiredAgents, "rows",
			f.RequiredNewRows)
	default:
		l.Info("the next round waits until enough agents have new rows", "agents", f.AgentsWithNewRows, "wanted",
			f.RequiredAgents,
			"rows", f.RequiredNewRows, "agents_without_row_count", f.WithoutRowCount)
	}
}

func (l coordinatorLog) rolloutBegan(f round.RolloutBegan) {
	attrs := []any{"model", f.Candidate.String(), "released", f.Released.String(), "agents", f.TrialAgents}
	switch {
	case f.Resumed && !f.Candidate.Present():
		l.Info("agents are told which model to predict with", "released", f.Released.String())
		return
	case f.Resumed:
		l.Info("agents are told which model to predict with", attrs[:4]...)
		return
	case f.TrialAgents < f.MinDecidingAgents:
		l.Warn("a model is rolled out to fewer agents than predict.devices, which decide; it is withdrawn unless more "+
			"come: raise predict.rollout", append(attrs, "predict.devices", f.MinDecidingAgents)...)
		return
	}
	l.Info("a model is rolled out to a share of the agents", attrs...)
}

func (l coordinatorLog) rolloutEnded(f round.RolloutEnded) {
	attrs := []any{"model", f.Candidate.String(), "agents", f.Agents, "judged", f.VotingAgents, "residuals_ratio",
		observe.Rounded(f.MedianErrorRatio)}
	switch f.Result {
	case rollout.First:
		l.Info("the first model is released to all agents", "model", f.Candidate.String())
	case rollout.Widened:
		l.Info("a model is released to all agents", attrs...)
	case rollout.Worse:
		l.Error("a model is withdrawn: its residuals are larger than those of the released one, or most agents refuse "+
			"it; agents predict with the released one until a newer model is better",
			append(attrs, "released", f.Released.String())...)
	case rollout.NoReports:
		l.Warn("a model is withdrawn: too few agents have judged it in time; agents predict with the released one",
			append(attrs, "released", f.Released.String())...)
	}
}

func (l coordinatorLog) readmitted(f round.AgentReadmitted) {
	if f.ReadmittedEarly {
		l.Warn("agent may be drawn again early, because too few others are present", "agent", f.Agent,
			"round", f.Round, "agents", f.EligibleAgents)
		return
	}
	l.Info("agent may be drawn again", "agent", f.Agent, "round", f.Round, "agents", f.EligibleAgents)
}

func (l coordinatorLog) logStateRecovery(f coordinator.StateFileRecovered) {
	attrs := []any{"file", f.File, "damage", f.Damage}
	if f.MovedTo != "" {
		attrs = append(attrs, "moved_to", f.MovedTo)
	}
	switch {
	case f.Version < f.PreviousVersion:
		l.Error("the run's model is lost, so the run continues from an older one; check the disk",
			append(attrs, "lost_version", f.PreviousVersion, "version", f.Version)...)
	case f.Version > f.PreviousVersion:
		l.Error("the run's model and all older ones are lost, so the run continues from a newer one; check the disk",
			append(attrs, "lost_version", f.PreviousVersion, "version", f.Version)...)
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
		"agents", f.Agents, "run", f.NewestRun, "round", f.NewestRound)
}

func (l coordinatorLog) blobChecked(f coordinator.RetainedBlobChecked) {
	attrs := []any{"blob", f.Blob.TopicLevel(), "parts", f.Parts, "missing", f.Missing, "again_in", f.RepublishDelay}
	switch {
	case f.Missing == 0:
		l.Debug("the broker returns the whole blob", "blob", f.Blob.TopicLevel(), "parts", f.Parts, "took",
			f.CheckDuration)
	case f.ReadRefused:
		l.Error("the broker does not let the coordinator read a blob back, so nobody knows whether agents can: let "+
			"the coordinator read and write m/# (`coordinator acl` writes the rules for Mosquitto)", attrs...)
	default:
		l.Error("the broker does not return all parts of a blob, so agents have to ask for them: let it retain "+
			"messages of 64 KiB, as many as there are parts, and let the coordinator read and write m/#", attrs...)
	}
}

func (l coordinatorLog) logStatistics(f coordinator.StatisticsReady) {
	l.Info("columns standardised", "rows", f.Rows, "columns", f.Columns)
	for _, column := range f.ConstantColumns {
		l.Warn("column is constant on all devices and is not scaled: remove it from task.features, or, if it should "+
			"vary, subtract a constant from it", "column", column)
	}
	for _, a := range f.DistantDataAgents {
		l.Warn("an agent's data lie far from the others': another unit, a broken sensor, or false data; the "+
			"standardisation disregards them", "agent", a.Agent, "column", a.Column, "deviations",
			observe.Rounded(a.DeviationsFromMean))
	}
}

func (l coordinatorLog) logEvaluation(f coordinator.ModelEvaluated) {
	r := &f.Result
	if f.TooFewAgents {
		l.Warn("too few agents have evaluated a model: it has no result", "version", f.Version, "agents",
			f.RespondingAgents,
			"present", f.PresentAgents)
		return
	}
	if r.ReportingAgents == 0 {
		l.Warn("no agent holds out enough rows to evaluate a model on: see evaluation.held_out of agents, and "+
			"round.evaluation.min_rows", "version", f.Version, "heard", f.RespondingAgents)
		return
	}
	words := []any{"version", f.Version, "agents", r.ReportingAgents, "present", f.PresentAgents, "rows", r.Rows,
		"risk", observe.Rounded(r.Risk)}
	for _, x := range []struct {
		name  string
		value *float64
	}{{"r2", r.R2}, {"accuracy", r.Accuracy}, {"f1", r.F1}} {
		if x.value != nil {
			words = append(words, x.name, observe.Rounded(*x.value))
		}
	}
	if text := r.FormatMetrics(); text != "" {
		words = append(words, "figures", text)
	}
	l.Info("agents have evaluated a model on the rows that they hold out", words...)
}

func (l coordinatorLog) meshMade(f coordinator.MeshComputed) {
	switch {
	case f.Err != nil:
		l.Error("there are no edges between the agents, so they do not mix in this round", "round", f.Round,
			"err", f.Err)
	case len(f.UnlocatedAgents) > 0:
		l.Warn("agents without a place cannot mix: give them d2d.place, or take the edges from a file",
			"round", f.Round, "agents", f.UnlocatedAgents)
	}
	if len(f.ConnectedComponents) > 1 {
		l.Warn("the graph of the agents is not connected: each part mixes by itself", "round", f.Round,
			"parts", f.ConnectedComponents)
	}
	l.Info("agents mix", "round", f.Round, "agents", f.MixingAgents, "edges", len(f.Edges),
		"second_eigenvalue", observe.Rounded(f.SecondEigenvalue), "alpha", observe.Rounded(f.EigenvalueRatio))
}

func (l coordinatorLog) modelReady(f coordinator.ModelReady) {
	attrs := []any{"version", f.Version, "hash", f.Hash.TopicLevel()}
	if !math.IsNaN(f.MeanReportedRisk) {
		attrs = append(attrs, "risk", observe.Rounded(f.MeanReportedRisk))
	}
	l.Info("model ready", append(attrs, host.ScoreAttributes(f.HeldOutScore)...)...)
	if of, risk := riskOf(f); l.risks.checkExplosion(f.Version, risk) {
		l.Warn("the model has become much worse: look at who was clipped or left out last; `coordinator run --from "+
			"VERSION` goes on from an earlier model", "version", f.Version, "risk", observe.Rounded(risk), "of", of,
			"least", observe.Rounded(l.risks.lowestRisk))
	}
}

// riskOf is a model's risk on the coordinator's held-out data or, without any, the median of its participants'.
func riskOf(f coordinator.ModelReady) (of string, risk float64) {
	if f.HeldOutScore != nil {
		return "held-out data", f.HeldOutScore.Risk
	}
	return "the agents' median", f.MedianRisk
}

// riskMonitor are those of the models since the program was started, or since another run began.
type riskMonitor struct {
	newest                wire.ModelVersion
	firstRisk, lowestRisk float64 // 0: none yet
	explosionReported     bool
}

// checkExplosion takes the risk of another model, NaN or 0 if it is not known. It reports, once until the risk is small
// again, that it is over 10 times the least and more than that of the first.
func (r *riskMonitor) checkExplosion(version wire.ModelVersion, risk float64) bool {
	if version < r.newest {
		*r = riskMonitor{}
	}
	r.newest = version
	switch worst := max(10*r.lowestRisk, r.firstRisk); {
	case r.firstRisk > 0 && risk > worst:
		told := r.explosionReported
		r.explosionReported = true
		return !told
	case !(risk > 0):
		return false
	case r.firstRisk == 0:
		r.firstRisk, r.lowestRisk = risk, risk
	}
	r.lowestRisk, r.explosionReported = min(r.lowestRisk, risk), r.explosionReported && risk > 2*r.lowestRisk
	return false
}

func (l coordinatorLog) logRoundClosed(f round.RoundClosed) {
	attrs := []any{"round", f.Round, "kind", f.Kind, "accepted", f.Accepted, "selected", f.Selected, "took",
		f.RoundDuration}
	if f.Kind == wire.KindTraining {
		attrs = append(attrs, "version", f.Version)
	}
	if len(f.Missing) > 0 {
		attrs = append(attrs, "missing", f.Missing)
	}
	l.Info("round closed", attrs...)
}

func (l coordinatorLog) abandoned(f round.RoundAbandoned) {
	attrs := []any{"round", f.Round, "reason", f.Reason, "accepted", f.Accepted, "selected", f.Selected, "took",
		f.RoundDuration}
	if len(f.Missing) > 0 {
		attrs = append(attrs, "missing", f.Missing)
	}
	if f.Err != nil {
		attrs = append(attrs, "err", f.Err)
	}
	l.Warn("round abandoned", attrs...)
}
