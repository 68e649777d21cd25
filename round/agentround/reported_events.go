package agentround

import (
	"cmp"
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// Metrics contains the metrics that the agent machine's events update.
var Metrics = []*observe.Metric{obeyedRoundMetric, ignoredAnnouncementsMetric, taskFitnessMetric, fittingRowsMetric,
	budgetShortfallsMetric,
	neighborEdgesEndedMetric, workInProgressMetric, endedWorkMetric, lastWorkEndMetric}

// The names of conditions that are also changed by events of package agent.
const (
	// AnnouncementVersionCondition is raised if the agent cannot decode the coordinator's announcements.
	AnnouncementVersionCondition = "protocol"
	// UplinkBudgetCondition is raised if the remaining uplink bytes of the month are too few for a round.
	UplinkBudgetCondition = "budget"
)

// The names of conditions that only the agent's machine changes.
const (
	unsupportedMessageCondition = "version"
	endedEdgeCondition          = "edge"
)

var obeyedRoundMetric = observe.OptionalGauge("round", "Number of the round in the coordinator's last accepted "+
	"announcement.")

// AnnouncementObeyedValue is the name of the status value that contains the position of the followed announcement, a
// *wire.AnnouncementPosition.
const AnnouncementObeyedValue = "announcement obeyed"

// AnnouncementObeyed is emitted when the agent follows a new announcement.
type AnnouncementObeyed struct{ Position wire.AnnouncementPosition }

// Describe implements observe.Event.
func (e AnnouncementObeyed) Describe(d *observe.EventDescription) {
	d.SetGauge(obeyedRoundMetric, float64(e.Position.Round))
	d.ShowStatusValue(AnnouncementObeyedValue, &e.Position)
	d.ResolveCondition(AnnouncementVersionCondition)
}

// AnnouncementIgnoreReason is the reason for ignoring an announcement, used as a metric label.
type AnnouncementIgnoreReason string

// The reasons for ignoring an announcement.
const (
	// The announcement is a replay, or the broker has lost newer state.
	IgnoredOlderAnnouncement AnnouncementIgnoreReason = "older"
	// the content differs from the followed announcement, but the position is the same.
	IgnoredConflictingAnnouncement AnnouncementIgnoreReason = "conflict"
)

// AnnouncementIgnoreReasons returns all reasons for ignoring an announcement, for use as metric labels.
func AnnouncementIgnoreReasons() []AnnouncementIgnoreReason {
	return []AnnouncementIgnoreReason{IgnoredOlderAnnouncement, IgnoredConflictingAnnouncement}
}

var ignoredAnnouncementsMetric = observe.CounterByLabel("announcements_ignored_total",
	"Announcements that this agent ignored, by reason: older (replayed) or conflict (two coordinators use the same "+
		"key).",
	"reason", observe.NamesAsStrings(AnnouncementIgnoreReasons()))

// AnnouncementIgnored is emitted when the agent ignores an announcement.
type AnnouncementIgnored struct {
	Position wire.AnnouncementPosition
	Reason   AnnouncementIgnoreReason
}

// Describe implements observe.Event.
func (e AnnouncementIgnored) Describe(d *observe.EventDescription) {
	d.IncCounter(ignoredAnnouncementsMetric, string(e.Reason))
	d.Log(observe.Warn, "announcement ignored", "position", e.Position, "reason", e.Reason)
}

// MessageUnsupported is emitted when a message requires a capability that this version of the agent lacks. The agent
// ignores the message's request.
type MessageUnsupported struct {
	MessageType wire.MessageType
	Err         error
}

// Describe implements observe.Event. The condition lasts until the agent participates in a round.
func (e MessageUnsupported) Describe(d *observe.EventDescription) {
	const remedy = "update agentd on this device"
	d.Log(observe.Warn, "unsupported message from the coordinator", "message", e.MessageType, "err", e.Err)
	d.RaiseCondition(unsupportedMessageCondition, fmt.Sprintf("unsupported %s from the coordinator: %v",
		e.MessageType, e.Err), remedy)
}

var budgetShortfallsMetric = observe.Counter("budget_short_total",
	"Times that the remaining traffic budget of the month became too small for a round.")

// UplinkBudgetTooSmall is emitted when the remaining uplink bytes of the month become too few for a round.
type UplinkBudgetTooSmall struct {
	Round                 wire.RoundID
	RoundBytes, BytesLeft uint64
}

// Describe implements observe.Event. The event budget.UplinkUsageChanged resolves the condition.
func (e UplinkBudgetTooSmall) Describe(d *observe.EventDescription) {
	d.IncCounter(budgetShortfallsMetric)
	d.Log(observe.Warn, "remaining traffic budget is too small for a round", "round", e.Round, "bytes",
		e.RoundBytes,
		"left", e.BytesLeft)
	d.RaiseCondition(UplinkBudgetCondition, fmt.Sprintf("a round requires %d bytes, but only %d bytes of this "+
		"month's traffic budget are left",
		e.RoundBytes, e.BytesLeft), "increase budget.bytes_per_month or wait for the next month")
}

var neighborEdgesEndedMetric = observe.CounterByLabel("mixing_edges_ended_total",
	"Times that the coordinator suspended the exchange of parameters with a neighbour for some rounds, by reason.",
	"reason",
	observe.StringerNames(wire.EdgeEndReasons()))

// NeighborEdgeEnded is emitted when the coordinator has excluded the mixing edge to a neighbour for some rounds.
type NeighborEdgeEnded struct {
	Round    wire.RoundID
	Neighbor wire.AgentID
	Reason   wire.EdgeEndReason
}

// Describe implements observe.Event.
func (e NeighborEdgeEnded) Describe(d *observe.EventDescription) {
	d.IncCounter(neighborEdgesEndedMetric, e.Reason.String())
	d.Log(observe.Warn, "coordinator suspended the exchange of parameters with a neighbour", "round", e.Round,
		"neighbour", e.Neighbor,
		"reason", e.Reason)
	d.RaiseCondition(endedEdgeCondition, fmt.Sprintf("the coordinator has suspended the exchange of parameters with "+
		"the neighbour %s for several rounds: %s",
		e.Neighbor,
		e.Reason), "compare the data of both devices with `agentd data check`")
}

// NeighborEdgesRestored is emitted when the agent mixes with all of its neighbours again.
type NeighborEdgesRestored struct{ Round wire.RoundID }

// Describe implements observe.Event.
func (e NeighborEdgesRestored) Describe(d *observe.EventDescription) {
	d.Log(observe.Info, "coordinator resumed the exchange of parameters with all neighbours", "round", e.Round)
	d.ResolveCondition(endedEdgeCondition)
}

// TaskFitnessOK is the fitness of local data that fit the task. All other values are reasons for declining.
const TaskFitnessOK = "fit"

var (
	taskFitnessMetric = observe.GaugeByLabel("task_fitness",
		"Whether this device can train for the announced task: 1 for the current state (fit, or the reason why it "+
			"cannot), 0 for all others.",
		"fitness", append([]string{TaskFitnessOK}, observe.StringerNames(wire.DeclineReasons())...))
	fittingRowsMetric = observe.OptionalGauge("samples", "Number of local rows that fit the announced task.")
)

// TaskFitnessValue is the name of the status value that contains the last *TaskFitnessChecked event.
const TaskFitnessValue = "task fitness"

// TaskFitnessChecked is emitted when the agent has compared the local data with the task.
type TaskFitnessChecked struct {
	UnfitReason wire.DeclineReason // reason why the data do not fit; 0 means they fit
	RowCount    uint64
}

// Fitness returns TaskFitnessOK, or the reason why the data do not fit.
func (e TaskFitnessChecked) Fitness() string {
	if e.UnfitReason == 0 {
		return TaskFitnessOK
	}
	return e.UnfitReason.String()
}

// Describe implements observe.Event. It logs nothing, since the event taskdata.RowsLoaded is logged.
func (e TaskFitnessChecked) Describe(d *observe.EventDescription) {
	d.SetGauge(fittingRowsMetric, float64(e.RowCount))
	d.ShowStatusValue(TaskFitnessValue, &e)
	d.SelectGaugeState(taskFitnessMetric, e.Fitness())
}

var workInProgressMetric = observe.Gauge("round_in_progress",
	"Whether this device is currently participating in a round (1) or not (0).")

// WorkStarted is emitted when the agent begins to participate in a round.
type WorkStarted struct {
	Round    wire.RoundID
	Kind     wire.RoundKind
	TimeLeft time.Duration
}

// Describe implements observe.Event.
func (e WorkStarted) Describe(d *observe.EventDescription) {
	d.SetGauge(workInProgressMetric, 1)
	d.Log(observe.Debug, "invited", "round", e.Round, "kind", e.Kind, "left", e.TimeLeft)
	d.ResolveCondition(unsupportedMessageCondition)
	d.ShowStatusValue(observe.ActivityStatus, fmt.Sprintf("participating in round %d", e.Round))
}

// WorkResult is the outcome of an agent's work in a round, used as a metric label.
type WorkResult string

// Outcomes of an agent's work in a round.
const (
	WorkAccepted   WorkResult = "accepted"
	WorkMixedOnly  WorkResult = "mixed" // the agent trained and mixed, but the coordinator requested no update
	WorkRefused    WorkResult = "refused"
	WorkDeclined   WorkResult = "declined"
	WorkSuperseded WorkResult = "superseded" // the round continued without the agent
)

// WorkResults returns all outcomes of an agent's work, for use as metric labels.
func WorkResults() []WorkResult {
	return []WorkResult{WorkAccepted, WorkMixedOnly, WorkRefused, WorkDeclined, WorkSuperseded}
}

var (
	endedWorkMetric = &observe.Metric{Name: "rounds_total", LabelNames: []string{"kind", "result", "reason"},
		Help:          "Rounds completed by this device, by kind, result, and reason for refusal or decline.",
		InitialSeries: endedWorkMetricSeries()}
	lastWorkEndMetric = observe.OptionalGauge("last_round_timestamp_seconds",
		"Time at which this device last finished a round, with any result.")
)

// noWorkEndReasonLabel is the label value for a result without a reason.
const noWorkEndReasonLabel = "none"

func endedWorkMetricSeries() (series [][]string) {
	for _, kind := range wire.RoundKinds() {
		for _, result := range WorkResults() {
			reasons := []string{noWorkEndReasonLabel}
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

// WorkEnded is emitted when the agent's work in a round has ended.
type WorkEnded struct {
	Round         wire.RoundID
	Kind          wire.RoundKind
	Result        WorkResult
	RefusalReason wire.UpdateRefusalReason // reason for the refusal; set only for WorkRefused
	DeclineReason wire.DeclineReason       // reason for declining; set only for WorkDeclined
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
func (e WorkEnded) Describe(d *observe.EventDescription) {
	reason := e.Reason()
	d.IncCounter(endedWorkMetric, e.Kind.String(), string(e.Result), cmp.Or(reason, noWorkEndReasonLabel))
	d.SetGauge(workInProgressMetric, 0)
	d.SetGaugeToNow(lastWorkEndMetric)
	if reason != "" {
		d.Log(observe.Warn, "round ended", "round", e.Round, "kind", e.Kind, "result", e.Result, "reason",
			reason)
	} else {
		d.Log(observe.Info, "round ended", "round", e.Round, "kind", e.Kind, "result", e.Result)
	}
	d.ShowStatusValue(observe.ActivityStatus, fmt.Sprintf("round %d ended: %s", e.Round, e.Result))
}
