package round

import (
	"time"

	"github.com/fedmesh/fedmesh/round/rollout"
	"github.com/fedmesh/fedmesh/round/stop"
	"github.com/fedmesh/fedmesh/wire"
)

// CoordinatorFact is something that happened at the coordinator's machine. Facts only inform: nobody who reads one
// decides by it.
//
//sumtype:decl
type CoordinatorFact interface{ ofCoordinator() }

// AgentFact is something that happened at an agent's machine.
//
//sumtype:decl
type AgentFact interface{ ofAgent() }

// AbandonReason tells why a round was given up. It is a metric's label.
type AbandonReason string

// The reasons for abandoning a round.
const (
	AbandonQuorum AbandonReason = "quorum" // too few updates can still come, or came
	AbandonFold   AbandonReason = "fold"   // the aggregate is not a model
	AbandonRule   AbandonReason = "rule"   // the rule needs more updates than are left
	AbandonModel  AbandonReason = "model"  // the disk has lost the base model
	AbandonSpool  AbandonReason = "spool"  // the disk does not give back an accepted update as it was
	AbandonAsked  AbandonReason = "asked"  // a person gave it up
)

// AbandonReasons returns all reasons, for closed label sets.
func AbandonReasons() []AbandonReason {
	return []AbandonReason{AbandonQuorum, AbandonFold, AbandonRule, AbandonModel, AbandonSpool, AbandonAsked}
}

// LeaveReason tells why an agent is no longer counted. It is a metric's label.
type LeaveReason string

// The reasons for counting an agent no longer.
const (
	LeftOffline LeaveReason = "offline" // it said so
	LeftLost    LeaveReason = "lost"    // the broker lost it
	LeftSilent  LeaveReason = "silent"  // it did not answer an invitation
	LeftRevoked LeaveReason = "revoked" // it is no longer in the list, or another device has its place there
)

// LeaveReasons returns all reasons, for closed label sets.
func LeaveReasons() []LeaveReason {
	return []LeaveReason{LeftOffline, LeftLost, LeftSilent, LeftRevoked}
}

// Facts of the coordinator's machine.
type (
	// PhaseEntered: the machine changed its phase; Spent is the time in the one before.
	PhaseEntered struct {
		Phase, PreviousPhase  CoordinatorPhase
		PreviousPhaseDuration time.Duration
	}
	// AgentEligible: an agent said hello and may be drawn.
	AgentEligible struct {
		Agent          wire.AgentID
		Samples        uint64
		EligibleAgents int // K so far
	}
	// AgentUnfit: an agent said hello and cannot do the task.
	AgentUnfit struct {
		Agent          wire.AgentID
		Reason         wire.DeclineReason
		DataProblem    wire.DataProblem // of its data, where it tells
		EligibleAgents int              // K without it
	}
	// AgentLeft: an agent is no longer counted, until it says hello again.
	AgentLeft struct {
		Agent          wire.AgentID
		Reason         LeaveReason
		EligibleAgents int // K that are left
	}
	// AgentSidelined: an agent spoiled the round and is not drawn for a while, nor counted in K.
	AgentSidelined struct {
		Agent              wire.AgentID
		Round              wire.RoundID
		Reason             SidelineReason
		DrawsSatOut        int          // that it sits out
		LastSidelinedRound wire.RoundID // the last of them
		EligibleAgents     int          // K that are left
	}
	// AgentReadmitted: an agent that sat out may be drawn again.
	AgentReadmitted struct {
		Agent           wire.AgentID
		Round           wire.RoundID // the first one that is drawn with it
		ReadmittedEarly bool         // since fewer than gather.minimum others are there
		EligibleAgents  int          // K with it, if it is there
	}
	// RowCountsTooLarge: agents report more rows than Most, five times the median of all agents. It is reported when it
	// begins, and when the list of agents changes, also to an empty one.
	RowCountsTooLarge struct {
		Round    wire.RoundID
		Agents   []wire.AgentID // in id order
		RowLimit uint64
		Capped   bool // with round.robust: they are weighted as if they had Most rows
	}
	// GatheringExtended: too few agents came, the window opens again.
	GatheringExtended struct{ PresentAgents, Minimum int }
	// RoundOpened: the participants are drawn.
	RoundOpened struct {
		Round           wire.RoundID
		Attempt         wire.Attempt
		Kind            wire.RoundKind
		Version         wire.ModelVersion // of the base model
		EligibleAgents  int               // K
		Participants    []wire.AgentID    // in id order
		SidelinedAgents []Sidelined       // are not drawn, and not in K; in id order
		ResponseLottery ResponseLottery   // whom was asked, where agents answer by chance
	}
	// AgentJoined: a participant is at work.
	AgentJoined struct {
		Agent wire.AgentID
		Round wire.RoundID
	}
	// AgentDeclined: a participant does not take part.
	AgentDeclined struct {
		Agent  wire.AgentID
		Round  wire.RoundID
		Reason wire.DeclineReason
	}
	// UploaderReplaced: an agent will not send; another was drawn in its place.
	UploaderReplaced struct {
		Round              wire.RoundID
		Agent, Replacement wire.AgentID
	}
	// UpdateAccepted: a participant's update is held.
	UpdateAccepted struct {
		Agent             wire.AgentID
		Round             wire.RoundID
		Update            wire.Update
		Norm              float64
		SinceAnnouncement time.Duration // since the announcement
		SavedBytes        int64         // bytes that the raw vector would have had more
	}
	// UpdateRefused: an update was not taken.
	UpdateRefused struct {
		Agent  wire.AgentID
		Round  wire.RoundID
		Reason wire.UpdateRefusalReason
	}
	// RoundClosed: the round's updates are aggregated.
	RoundClosed struct {
		Round             wire.RoundID
		Kind              wire.RoundKind
		Version           wire.ModelVersion // of the new model
		Selected          int
		Accepted          int
		AggregatedUpdates int            // of the accepted: the others are left out
		Missing           []wire.AgentID // selected and neither accepted nor declined nor refused
		ByDeadline        bool
		RoundDuration     time.Duration
	}
	// RoundAbandoned: the round's updates are thrown away.
	RoundAbandoned struct {
		Round         wire.RoundID
		Kind          wire.RoundKind
		Reason        AbandonReason
		Selected      int
		Accepted      int
		Missing       []wire.AgentID
		Err           error
		RoundDuration time.Duration
	}
	// RolloutBegan: a share of the agents predicts with a candidate, all others with the released model. Told again at
	// the start of a process, as Resumed; then there may be no candidate.
	RolloutBegan struct {
		Candidate, Released wire.ModelName
		TrialAgents         int // of the share that are there now
		MinDecidingAgents   int // that decide
		Resumed             bool
	}
	// RolloutEnded: the candidate is released, or withdrawn.
	RolloutEnded struct {
		Candidate, Released wire.ModelName // by now
		rollout.Verdict
	}
	// ScheduleWait: the schedule lets no round be opened. Told again as Resumed when what it waits for comes nearer.
	ScheduleWait struct {
		Reason            WaitReason
		WindowOpensAt     time.Time // when a window opens; zero where new rows are waited for
		AgentsWithNewRows int       // agents that have enough new rows
		RequiredAgents    int       // that must have
		RequiredNewRows   int       // each
		WithoutRowCount   int       // agents that have not reported their number of rows
		Resumed           bool
	}
	// StopProgressReported: how far the run has come to its end by this rule: told at a start, and after each
	// aggregation.
	StopProgressReported struct {
		StopRules stop.Config
		stop.State
	}
	// EdgesJudged: what agents have measured of the edges of a block was held against each other.
	EdgesJudged struct {
		Round          wire.RoundID // for which the edges were made
		Reports        int
		MedianDistance float64 // median of ‖x_j − x_i‖
		EndedEdges     int     // edges that are left out
	}
	// EdgeEnded: an edge is left out for a while.
	EdgeEnded struct {
		Round          wire.RoundID // for which it was made
		Edge           EndedEdge
		MeanDistance   float64 // mean of ‖x_j − x_i‖; 0 if neither end has told
		MedianDistance float64 // the median edge's
	}
	// RunFinished: the run is over.
	RunFinished struct {
		Version wire.ModelVersion
		Reason  stop.Reason
	}
)

func (PhaseEntered) ofCoordinator()         {}
func (AgentEligible) ofCoordinator()        {}
func (AgentUnfit) ofCoordinator()           {}
func (AgentLeft) ofCoordinator()            {}
func (AgentSidelined) ofCoordinator()       {}
func (AgentReadmitted) ofCoordinator()      {}
func (RowCountsTooLarge) ofCoordinator()    {}
func (GatheringExtended) ofCoordinator()    {}
func (RoundOpened) ofCoordinator()          {}
func (AgentJoined) ofCoordinator()          {}
func (AgentDeclined) ofCoordinator()        {}
func (UploaderReplaced) ofCoordinator()     {}
func (UpdateAccepted) ofCoordinator()       {}
func (UpdateRefused) ofCoordinator()        {}
func (RoundClosed) ofCoordinator()          {}
func (RoundAbandoned) ofCoordinator()       {}
func (RolloutBegan) ofCoordinator()         {}
func (RolloutEnded) ofCoordinator()         {}
func (ScheduleWait) ofCoordinator()         {}
func (StopProgressReported) ofCoordinator() {}
func (EdgesJudged) ofCoordinator()          {}
func (EdgeEnded) ofCoordinator()            {}
func (RunFinished) ofCoordinator()          {}

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

// Facts of the agent's machine.
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

func (AnnouncementObeyed) ofAgent()   {}
func (AnnouncementIgnored) ofAgent()  {}
func (TaskPrepared) ofAgent()         {}
func (UplinkBudgetTooSmall) ofAgent() {}
func (MessageUnsupported) ofAgent()   {}
func (EdgeLost) ofAgent()             {}
func (WorkStarted) ofAgent()          {}
func (WorkEnded) ofAgent()            {}
