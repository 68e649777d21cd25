package round

import (
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// AgentMetrics are the metrics of the events of the agent's machine.
var AgentMetrics []*observe.Metric

// AnnouncementIgnoreReason tells why an announcement was not obeyed. It is a metric's label.
type AnnouncementIgnoreReason string

// The reasons for ignoring an announcement.
const (
	IgnoredOlder    AnnouncementIgnoreReason = "older"    // replayed, or the broker's state is old
	IgnoredConflict AnnouncementIgnoreReason = "conflict" // two announcements with one place in time
)

// IgnoreReasons returns all reasons, for closed label sets.
func IgnoreReasons() []AnnouncementIgnoreReason {
	return []AnnouncementIgnoreReason{IgnoredOlder, IgnoredConflict}
}

// WorkResult tells how an agent's part in a round ended. It is a metric's label.
type WorkResult string

// The results.
const (
	WorkAccepted   WorkResult = "accepted"
	WorkMixed      WorkResult = "mixed" // it trained and mixed, and was not asked to send
	WorkRefused    WorkResult = "refused"
	WorkDeclined   WorkResult = "declined"
	WorkSuperseded WorkResult = "superseded" // the round went on without it
)

// WorkResults returns all results, for closed label sets.
func WorkResults() []WorkResult {
	return []WorkResult{WorkAccepted, WorkMixed, WorkRefused, WorkDeclined, WorkSuperseded}
}

// Events of the agent's machine.
type (
	// AnnouncementObeyed: the agent follows a new announcement.
	AnnouncementObeyed struct{ Position wire.AnnouncementPosition }
	// AnnouncementIgnored: the agent does not follow an announcement.
	AnnouncementIgnored struct {
		Position wire.AnnouncementPosition
		Reason   AnnouncementIgnoreReason
	}
	// MessageUnsupported: a message needs what this build does not know, so the agent takes no part in what it asks
	// for.
	MessageUnsupported struct {
		Message wire.MessageType
		Err     error
	}
	// UplinkBudgetTooSmall: what is left of the month's bytes is less than a round takes.
	UplinkBudgetTooSmall struct {
		Round                 wire.RoundID
		RoundBytes, BytesLeft uint64
	}
	// EdgeLost: the agent does not mix with a neighbour for some rounds.
	EdgeLost struct {
		Round    wire.RoundID
		Neighbor wire.AgentID
		Reason   wire.EdgeEndReason
	}
	// TaskPrepared: the local data were held against the task.
	TaskPrepared struct {
		UnfitReason wire.DeclineReason
		Samples     uint64
	}
	// WorkStarted: the agent takes part in a round.
	WorkStarted struct {
		Round wire.RoundID
		Kind  wire.RoundKind
		Left  time.Duration
	}
	// WorkEnded: the agent's part in a round is over.
	WorkEnded struct {
		Round         wire.RoundID
		Kind          wire.RoundKind
		Result        WorkResult
		RefusalReason wire.UpdateRefusalReason // with WorkRefused
		DeclineReason wire.DeclineReason       // with WorkDeclined
	}
)

func (AnnouncementObeyed) Describe(*observe.Description)   {}
func (AnnouncementIgnored) Describe(*observe.Description)  {}
func (TaskPrepared) Describe(*observe.Description)         {}
func (UplinkBudgetTooSmall) Describe(*observe.Description) {}
func (MessageUnsupported) Describe(*observe.Description)   {}
func (EdgeLost) Describe(*observe.Description)             {}

// Describe implements observe.Event.
func (e WorkStarted) Describe(d *observe.Description) {
	d.Show(observe.Activity, fmt.Sprintf("at work in round %d", e.Round))
}

// Describe implements observe.Event.
func (e WorkEnded) Describe(d *observe.Description) {
	d.Show(observe.Activity, fmt.Sprintf("round %d %s", e.Round, e.Result))
}
