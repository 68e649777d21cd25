package agentd

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/internal/agentd/agentstatus"
	"github.com/fedmesh/fedmesh/internal/keys"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// agentLog logs an agent's facts. The MQTT session itself logs the state of the link.
type agentLog struct{ *slog.Logger }

// Observe implements observe.Observer.
func (l agentLog) Observe(fact observe.Event) {
	l.observeRound(fact)
	switch f := fact.(type) {
	case agent.StateLost:
		l.Error("a file in the state folder cannot be used; the agent goes on without it: "+f.Consequence, "file",
			f.File,
			"err", f.Err)
	case agent.AnnouncementsStale:
		l.logStaleAnnouncements(f)
	case agent.RootDocumentAdopted:
		l.Info("the next root document is taken: its keys count now", "version", f.Version)
	case agent.CertificateUsed:
		if f.Renewed {
			l.Info("the certificate for the broker is another one: the next connection uses it", "expires",
				f.Until.UTC().Format(time.DateTime))
		}
	case agent.CertificateEnding:
		l.Warn(agentstatus.CertificateEndingAdvice(f), "expires", f.Until.UTC().Format(time.DateTime))
	case agent.RenewalRefused:
		l.Error("the coordinator gives this device no other key or certificate: "+agent.RenewRefusalText(f.Reason),
			"reason",
			f.Reason)
	case agent.Rekeyed:
		l.Warn("this device has another key from now on; it is kept in the state folder", "key",
			keys.Format(f.Key.Ed25519()))
	case agent.ClockBehind:
		l.logClockBehind(f)
	case agent.PersonalModelReset:
		l.logPersonalModelReset(f)
	case agent.BootRaised:
		l.Warn("an earlier start of this agent had a higher number: the counter of starts was lost or restored from "+
			"an older copy, and is raised", "from", f.From, "to", f.To)
	case agent.GroupKeyAwaited:
		l.Info("the task or a model is sealed, and this device has no key for it yet: the coordinator is asked for it")
	case agent.GroupKeyReceived:
		l.Info("the coordinator has given this device the key under which tasks and models are sealed")
	case agent.DeviceRulesChecked:
		l.logDeviceVerdict(f)
	case agent.CloneSeen:
		l.logClone(f)
	case agent.MessagesRejected:
		l.logRejection(f)
	case agent.DataLoaded:
		l.logDataLoad(f)
	case agent.UpdateSettled:
		l.logSettledUpdate(f)
	case agent.ErrorFeedbackKept:
		if f.ResidualLost {
			l.Info("what the codec has not sent of earlier updates is given up: it is not known what became of the "+
				"last one, or it was of another run or other columns", "round", f.Round)
		}
	case agent.Trained:
		l.logTraining(f)
	case agent.TrainingLockAwaited:
		if f.LockHolder != "" {
			l.Debug("training waits: the device trains for another federation", "for", f.LockHolder)
		}
	case agent.ModelJudged:
		l.logModelJudgement(f)
	case agent.Evaluated:
		l.logEvaluation(f)
	case agent.ModelInUse:
		l.Info("predictions are made with another model", "run", f.Run, "version", f.Version, "task", f.Task,
			"pinned", f.Pinned)
	case agent.Predicted:
		l.logPrediction(f)
	case agent.ModelHookFailed:
		l.Error("predict.hook failed; the model is in use nevertheless", "err", f.Err)
	case agent.BlockBegan:
		l.Info("mixing continues without the server", "block", f.Block, "neighbours", f.Neighbors,
			"begins_with", f.Origin)
	case agent.NeighborsFound:
		l.Info("neighbours found", "neighbours", f.Neighbors, "agents_in_cell", f.OtherAgents)
	case agent.ExternalTrainerStarted:
		l.Info("a trainer runs", "trainer", f.ConfiguredName, "name", f.Name, "rows", f.Rows, "not_confined",
			f.UnconfinedReason)
	case agent.ExternalTrainerEnded:
		l.Error("a trainer has ended", "trainer", f.Trainer, "err", f.Err, "again_in", f.RestartDelay)
	case agent.TrainingFailed:
		l.Error("no update for this round", "round", f.Round, "err", f.Err)
	case agent.DataCollected:
		l.logUnusedValues(f)
	case agent.BudgetUsed, agent.ModelFetched: // not logged
	}
}

func (l agentLog) logPersonalModelReset(f agent.PersonalModelReset) {
	if f.Err != nil {
		l.Warn("the local steps of the device's own model have diverged, and it begins anew: see task.personal.lambda "+
			"and task.step_size", "round", f.Round, "parameters", f.Parameters, "err", f.Err)
		return
	}
	l.Info("what of the model is the device's own begins anew", "round", f.Round, "parameters", f.Parameters)
}

func (l agentLog) logStaleAnnouncements(f agent.AnnouncementsStale) {
	if f.StaleFor == 0 {
		l.Info("announcements arrive again")
		return
	}
	l.Error(agentstatus.StaleAnnouncementAdvice(f.StaleFor))
}

func (l agentLog) logClockBehind(f agent.ClockBehind) {
	if f.UsedTime.IsZero() {
		l.Info("the machine's clock is right again")
		return
	}
	l.Warn(agentstatus.ClockBehindAdvice(f))
}

func (l agentLog) logRejection(f agent.MessagesRejected) {
	if f.Reason == 0 {
		l.Info("the coordinator accepts this device's messages again")
		return
	}
	l.Error(agentstatus.RejectionAdvice(f.Reason), "reason", f.Reason)
}

func (l agentLog) logSettledUpdate(f agent.UpdateSettled) {
	if f.Fate != wire.FateFolded {
		l.Info("an update is not in the model", "round", f.Round, "fate", f.Fate)
	}
}

func (l agentLog) logTraining(f agent.Trained) {
	attrs := []any{"round", f.Round, "local_steps", f.LocalSteps, "because", f.Sizing, "step_time", f.StepTime,
		"risk_before", observe.Rounded(f.RiskBefore), "risk_after", observe.Rounded(f.RiskAfter), "took",
		f.LocalStepsDuration}
	if f.LockWait > 0 {
		attrs = append(attrs, "waited_for_others", f.LockWait)
	}
	l.Info("trained", attrs...)
	if s := f.HeldOutScore; s != nil {
		attrs := []any{"round", f.Round, "version", f.Version, "rows", s.Samples, "risk", observe.Rounded(s.Risk)}
		l.Info("base model scored on held-out rows", append(attrs, host.ScoreAttributes(s)...)...)
	}
	if s := f.MixingStats; s != nil {
		l.Info("mixed with the neighbours", "round", f.Round, "flows", s.Flows, "late", s.LateFlows,
			"skipped", s.SkippedSnapshots, "unreconciled", s.Unreconciled, "took", f.MixedFor)
	}
}

// observeRound reads the events of the round machine.
func (l agentLog) observeRound(fact observe.Event) {
	switch f := fact.(type) {
	case round.UplinkBudgetTooSmall:
		l.Warn("the rest of the month's byte budget is too small for a round", "round", f.Round, "bytes", f.RoundBytes,
			"left", f.BytesLeft)
	case round.AnnouncementIgnored:
		l.Warn("announcement ignored", "place", f.Position, "reason", f.Reason)
	case round.MessageUnsupported:
		l.Warn("this agent takes no part: it does not know what the coordinator's message needs; update the agent",
			"message", f.Message, "err", f.Err)
	case round.EdgeLost:
		l.Warn("the coordinator has ended the edge to a neighbour for some rounds", "round", f.Round,
			"neighbour", f.Neighbor, "reason", f.Reason)
	case round.WorkStarted:
		l.Debug("invited", "round", f.Round, "kind", f.Kind, "left", f.Left)
	case round.WorkEnded:
		l.logWorkEnd(f)
	case round.AnnouncementObeyed, round.TaskPrepared: // not logged
	}
}

func (l agentLog) logPrediction(f agent.Predicted) {
	if f.Err != nil {
		l.Error("there are no forecasts", "lost", f.LostForecasts, "err", f.Err)
	}
	if f.ErrorResolved {
		l.Info("there are forecasts again")
	}
	if f.Anomalies > 0 {
		l.Warn("residuals are beyond the usual", "rows", f.NewForecasts, "anomalies", f.Anomalies)
	}
}

func (l agentLog) logEvaluation(f agent.Evaluated) {
	switch {
	case f.Err != nil:
		l.Warn("a model is not evaluated", "version", f.Version, "err", f.Err)
	case f.Rows == 0:
		l.Warn("a model is evaluated, and its risk is too large to be told", "version", f.Version)
	default:
		l.Info("a model is evaluated on the rows that are held out", "version", f.Version, "rows", f.Rows, "risk",
			observe.Rounded(f.Risk))
	}
}

func (l agentLog) logModelJudgement(f agent.ModelJudged) {
	attrs := []any{"run", f.Run, "version", f.Version, "rows", f.HeldOutRows, "risk", observe.Rounded(f.Risk),
		"risk_in_use", observe.Rounded(f.RiskOfModelInUse)}
	switch f.Result {
	case agent.ModelAdopted:
		l.Info("a new model is taken", attrs...)
	case agent.ModelFailed:
		l.Error("a new model could not be taken; it is tried again", append(attrs, "err", f.Err)...)
	case agent.ModelWorse, agent.ModelNotFinite, agent.ModelUnjudged, agent.ModelOtherPinned:
		l.Warn("a new model is not taken", append(attrs, "reason", f.Result)...)
	}
}

func (l agentLog) logClone(f agent.CloneSeen) {
	does := "this one stays connected"
	if f.Pause > 0 {
		does = "this one disconnects for " + f.Pause.Round(time.Second).String()
	}
	l.Error("another device has the identity of this agent: give one of them an id and a key of its own; "+does,
		"starts", fmt.Sprintf("%d (%016x, here) and %d (%016x)", f.Boot, f.Nonce, f.OtherBoot, f.OtherNonce))
}

func (l agentLog) logWorkEnd(f round.WorkEnded) {
	attrs := []any{"round", f.Round, "kind", f.Kind, "result", f.Result}
	switch f.Result {
	case round.WorkRefused:
		l.Warn("round ended", append(attrs, "reason", f.RefusalReason)...)
	case round.WorkDeclined:
		l.Warn("round ended", append(attrs, "reason", f.DeclineReason)...)
	default:
		l.Info("round ended", attrs...)
	}
}

func (l agentLog) logDataLoad(f agent.DataLoaded) {
	switch {
	case f.Problem != nil && f.RenewalReason != "":
		l.Error("the local data fit the task no more; the agent takes no part in it: "+f.RenewalReason, "task", f.Task,
			"err", f.Problem)
	case f.Problem != nil:
		l.Error("the local data do not fit the task; the agent takes no part in it", "task", f.Task, "err", f.Problem)
	case f.RenewalReason != "":
		l.Warn("local data have changed: "+f.RenewalReason, "task", f.Task, "rows", f.Rows, "before", f.RowsBefore,
			"took", f.Took)
	case f.RowsBefore > 0:
		l.Info("local data have grown", "task", f.Task, "rows", f.Rows, "before", f.RowsBefore, "took", f.Took)
	default:
		l.Info("local data fit the task", "task", f.Task, "rows", f.Rows, "took", f.Took)
	}
}

// logUnusedValues logs the first value of an input, the tenth, the hundredth … that is not used for a reason.
func (l agentLog) logUnusedValues(f agent.DataCollected) {
	before := map[string]map[data.Reason]uint64{}
	for _, c := range f.Before.Columns {
		before[c.Name] = c.Unused
	}
	for _, c := range f.Columns {
		for _, why := range slices.Sorted(maps.Keys(c.Unused)) {
			n, was := c.Unused[why], before[c.Name][why]
			if len(strconv.FormatUint(n, 10)) > len(strconv.FormatUint(was, 10)) || n > 0 && was == 0 {
				last := c.Example(why)
				attributes := []any{"input", c.Name, "reason", why, "values", n, "used", c.Used, "last", last.Where}
				if last.Problem != "" {
					attributes = append(attributes, "problem", last.Problem)
				}
				l.Warn("values of an input are not used", attributes...)
			}
		}
	}
}

// logDeviceVerdict logs when a rule for this device stops the work, and when the work may go on.
func (l agentLog) logDeviceVerdict(f agent.DeviceRulesChecked) {
	switch barred := f.PreviousVerdict.Rule != "" && !f.PreviousVerdict.MayWork(); {
	case !f.MayWork() && (!barred || f.Rule != f.PreviousVerdict.Rule):
		l.Info("a rule for this device stops its work", "rule", f.Rule)
	case f.MayWork() && barred:
		l.Info("the rules for this device allow work again", "share_of_local_steps", observe.Rounded(f.LocalStepShare))
	}
}
