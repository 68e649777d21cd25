package agentround

import (
	"cmp"
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// Metrics are the metrics of the events of the agent's machine.
var Metrics = []*observe.Metric{obeyedRound, ignoredAnnouncements, taskFitness, fittingRows, budgetShortfalls,
	lostEdges, workInProgress, endedWork, lastWorkEndedAt}

// The names of conditions that events of package agent change too.
const (
	// AnnouncementVersionCondition: the agent cannot read the coordinator's announcements.
	AnnouncementVersionCondition = "protocol"
	// UplinkBudgetCondition: the rest of the month's bytes is too small for a round.
	UplinkBudgetCondition = "budget"
)

// The names of conditions that only the agent's machine changes.
const (
	unsupportedCondition = "version"
	edgeCondition        = "edge"
)

var obeyedRound = observe.OptionalGauge("round", "Number of the round in the announcement that is obeyed.")

// AnnouncementObeyed: the agent follows a new announcement.
type AnnouncementObeyed struct{ Position wire.AnnouncementPosition }

// Describe implements observe.Event.
func (e AnnouncementObeyed) Describe(d *observe.Description) {
	d.Set(obeyedRound, float64(e.Position.Round))
	d.Resolve(AnnouncementVersionCondition)
}

// AnnouncementIgnoreReason is why an announcement was not obeyed. It is a metric's label.
type AnnouncementIgnoreReason string

// The reasons for ignoring an announcement.
const (
	IgnoredOlder    AnnouncementIgnoreReason = "older"    // replayed, or the broker's state is old
	IgnoredConflict AnnouncementIgnoreReason = "conflict" // two announcements have the same position
)

// IgnoreReasons returns all reasons, for closed label sets.
func IgnoreReasons() []AnnouncementIgnoreReason {
	return []AnnouncementIgnoreReason{IgnoredOlder, IgnoredConflict}
}

var ignoredAnnouncements = observe.CounterByLabel("announcements_ignored_total",
	"Announcements that were not obeyed: older ones are replays, a conflict is two coordinators with one key.",
	"reason", observe.Strings(IgnoreReasons()))

// AnnouncementIgnored: the agent does not follow an announcement.
type AnnouncementIgnored struct {
	Position wire.AnnouncementPosition
	Reason   AnnouncementIgnoreReason
}

// Describe implements observe.Event.
func (e AnnouncementIgnored) Describe(d *observe.Description) {
	d.Inc(ignoredAnnouncements, string(e.Reason))
	d.Log(observe.Warn, "announcement ignored", "position", e.Position, "reason", e.Reason)
}

// MessageUnsupported: a message requires a capability that this build does not have. The agent does not take part in
// what the message asks for.
type MessageUnsupported struct {
	Message wire.MessageType
	Err     error
}

// Describe implements observe.Event. The condition lasts until the agent takes part in a round.
func (e MessageUnsupported) Describe(d *observe.Description) {
	const remedy = "update agentd on this device"
	d.Log(observe.Warn, "message not supported", "message", e.Message, "err", e.Err)
	d.Fail(unsupportedCondition, fmt.Sprintf("the coordinator's %s is not supported: %v", e.Message, e.Err), remedy)
}

var budgetShortfalls = observe.Counter("budget_short_total",
	"Times that the rest of the month's budget became too small for a round.")

// UplinkBudgetTooSmall: the rest of the month's bytes has become too small for a round.
type UplinkBudgetTooSmall struct {
	Round                 wire.RoundID
	RoundBytes, BytesLeft uint64
}

// Describe implements observe.Event. An event of the month's bytes (budget.Used) resolves the condition.
func (e UplinkBudgetTooSmall) Describe(d *observe.Description) {
	d.Inc(budgetShortfalls)
	d.Log(observe.Warn, "byte budget of the month is too small for a round", "round", e.Round, "bytes", e.RoundBytes,
		"left", e.BytesLeft)
	d.Fail(UplinkBudgetCondition, fmt.Sprintf("a round needs %d bytes, but %d of the month's budget are left",
		e.RoundBytes, e.BytesLeft), "raise budget.bytes_per_month, or wait for the next month")
}

var lostEdges = observe.CounterByLabel("mixing_edges_ended_total",
	"Edges that the coordinator has taken away for some rounds, by reason.", "reason",
	observe.StringerNames(wire.EdgeEndReasons()))

// EdgeLost: the coordinator has ended the edge to a neighbour for some rounds.
type EdgeLost struct {
	Round    wire.RoundID
	Neighbor wire.AgentID
	Reason   wire.EdgeEndReason
}

// Describe implements observe.Event.
func (e EdgeLost) Describe(d *observe.Description) {
	d.Inc(lostEdges, e.Reason.String())
	d.Log(observe.Warn, "coordinator ended the edge to a neighbour", "round", e.Round, "neighbour", e.Neighbor,
		"reason", e.Reason)
	d.Fail(edgeCondition, fmt.Sprintf("the coordinator has ended the edge to %s for some rounds: %s", e.Neighbor,
		e.Reason), "compare the data of both devices with `agentd data check`")
}

// EdgesRestored: the agent mixes with all of its neighbours again.
type EdgesRestored struct{ Round wire.RoundID }

// Describe implements observe.Event.
func (e EdgesRestored) Describe(d *observe.Description) {
	d.Log(observe.Info, "coordinator restored the edges to all neighbours", "round", e.Round)
	d.Resolve(edgeCondition)
}

// FitnessOK is the fitness of local data that fit the task. The other values are reasons for declining.
const FitnessOK = "fit"

var (
	taskFitness = observe.GaugeByLabel("task_fitness",
		"Whether the local data fit the announced task: 1 for fit or for the reason why not, 0 for all others; "+
			"all 0 until a task came.",
		"fitness", append([]string{FitnessOK}, observe.StringerNames(wire.DeclineReasons())...))
	fittingRows = observe.OptionalGauge("samples", "Rows of local data that fit the announced task.")
)

// TaskPrepared: the agent has compared the local data with the task.
type TaskPrepared struct {
	UnfitReason wire.DeclineReason // 0 = the data fit
	Samples     uint64
}

// Fitness returns FitnessOK, or the reason why the data do not fit.
func (e TaskPrepared) Fitness() string {
	if e.UnfitReason == 0 {
		return FitnessOK
	}
	return e.UnfitReason.String()
}

// Describe implements observe.Event. The event of the data (taskdata.Loaded) is logged.
func (e TaskPrepared) Describe(d *observe.Description) {
	d.Set(fittingRows, float64(e.Samples))
	d.Select(taskFitness, e.Fitness())
}

var workInProgress = observe.Gauge("round_in_progress", "Whether this device is at work in a round (1) or not (0).")

// WorkStarted: the agent takes part in a round.
type WorkStarted struct {
	Round wire.RoundID
	Kind  wire.RoundKind
	Left  time.Duration
}

// Describe implements observe.Event.
func (e WorkStarted) Describe(d *observe.Description) {
	d.Set(workInProgress, 1)
	d.Log(observe.Debug, "invited", "round", e.Round, "kind", e.Kind, "left", e.Left)
	d.Resolve(unsupportedCondition)
	d.Show(observe.Activity, fmt.Sprintf("at work in round %d", e.Round))
}

// WorkResult is how an agent's part in a round ended. It is a metric's label.
type WorkResult string

// The results.
const (
	WorkAccepted   WorkResult = "accepted"
	WorkMixed      WorkResult = "mixed" // it trained and mixed, and was not asked to send
	WorkRefused    WorkResult = "refused"
	WorkDeclined   WorkResult = "declined"
	WorkSuperseded WorkResult = "superseded" // the round continued without it
)

// WorkResults returns all results, for closed label sets.
func WorkResults() []WorkResult {
	return []WorkResult{WorkAccepted, WorkMixed, WorkRefused, WorkDeclined, WorkSuperseded}
}

var (
	endedWork = &observe.Metric{Name: "rounds_total", Labels: []string{"kind", "result", "reason"},
		Help: "Rounds that this device was drawn for and that are over for it, by kind of round, result, and the " +
			"reason for a refusal or a declining.",
		Series: endedWorkSeries()}
	lastWorkEndedAt = observe.OptionalGauge("last_round_timestamp_seconds",
		"When this device's part in a round last ended, whatever the result, in Unix time.")
)

// noWorkReason is the label value for a result without a reason.
const noWorkReason = "none"

func endedWorkSeries() (series [][]string) {
	for _, kind := range wire.RoundKinds() {
		for _, result := range WorkResults() {
			reasons := []string{noWorkReason}
			switch result {
			case WorkRefused:
				reasons = observe.StringerNames(wire.UpdateRefusalReasons())
			case WorkDeclined:
				reasons = observe.StringerNames(wire.DeclineReasons())
			}
			for _, reason := range reasons {
				series = append(series, []string{kind.String(), string(result), reason})
			}
		}
	}
	return series
}

// WorkEnded: the agent's part in a round is over.
type WorkEnded struct {
	Round         wire.RoundID
	Kind          wire.RoundKind
	Result        WorkResult
	RefusalReason wire.UpdateRefusalReason // with WorkRefused
	DeclineReason wire.DeclineReason       // with WorkDeclined
}

// Reason returns the reason for a refusal or a decline. It is empty for other results.
func (e WorkEnded) Reason() string {
	switch e.Result {
	case WorkRefused:
		return e.RefusalReason.String()
	case WorkDeclined:
		return e.DeclineReason.String()
	default:
		return ""
	}
}

// Describe implements observe.Event.
func (e WorkEnded) Describe(d *observe.Description) {
	reason := e.Reason()
	d.Inc(endedWork, e.Kind.String(), string(e.Result), cmp.Or(reason, noWorkReason))
	d.Set(workInProgress, 0)
	d.SetNow(lastWorkEndedAt)
	if reason != "" {
		d.Log(observe.Warn, "round ended", "round", e.Round, "kind", e.Kind, "result", e.Result, "reason", reason)
	} else {
		d.Log(observe.Info, "round ended", "round", e.Round, "kind", e.Kind, "result", e.Result)
	}
	d.Show(observe.Activity, fmt.Sprintf("round %d %s", e.Round, e.Result))
}
