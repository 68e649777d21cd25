package round

import (
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/rollout"
	"github.com/fedmesh/fedmesh/round/stop"
	"github.com/fedmesh/fedmesh/wire"
)

// CoordinatorMetrics are the metrics of the events of the coordinator's machine.
var CoordinatorMetrics []*observe.Metric

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

// Events of the coordinator's machine.
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

func (PhaseEntered) Describe(*observe.Description)         {}
func (AgentEligible) Describe(*observe.Description)        {}
func (AgentUnfit) Describe(*observe.Description)           {}
func (AgentLeft) Describe(*observe.Description)            {}
func (AgentSidelined) Describe(*observe.Description)       {}
func (AgentReadmitted) Describe(*observe.Description)      {}
func (RowCountsTooLarge) Describe(*observe.Description)    {}
func (AgentJoined) Describe(*observe.Description)          {}
func (AgentDeclined) Describe(*observe.Description)        {}
func (UploaderReplaced) Describe(*observe.Description)     {}
func (UpdateAccepted) Describe(*observe.Description)       {}
func (UpdateRefused) Describe(*observe.Description)        {}
func (RolloutBegan) Describe(*observe.Description)         {}
func (RolloutEnded) Describe(*observe.Description)         {}
func (StopProgressReported) Describe(*observe.Description) {}
func (EdgesJudged) Describe(*observe.Description)          {}
func (EdgeEnded) Describe(*observe.Description)            {}

// Describe implements observe.Event.
func (e GatheringExtended) Describe(d *observe.Description) {
	d.Show(observe.Activity, fmt.Sprintf("waiting for agents: %d of %d are present", e.PresentAgents, e.Minimum))
}

// Describe implements observe.Event.
func (e RoundOpened) Describe(d *observe.Description) {
	d.Show(observe.Activity, fmt.Sprintf("round %d is open for %d of %d agents", e.Round, len(e.Participants),
		e.EligibleAgents))
}

// Describe implements observe.Event.
func (e RoundClosed) Describe(d *observe.Description) {
	d.Show(observe.Activity, fmt.Sprintf("round %d closed with %d of %d", e.Round, e.Accepted, e.Selected))
}

// Describe implements observe.Event.
func (e RoundAbandoned) Describe(d *observe.Description) {
	d.Show(observe.Activity, fmt.Sprintf("round %d abandoned with %d of %d", e.Round, e.Accepted, e.Selected))
}

// Describe implements observe.Event.
func (e ScheduleWait) Describe(d *observe.Description) {
	if e.Reason == WaitWindow {
		d.Show(observe.Activity, "rounds rest until "+e.WindowOpensAt.Format("Mon 15:04"))
	} else {
		d.Show(observe.Activity, fmt.Sprintf("%d of %d agents have %d new rows", e.AgentsWithNewRows, e.RequiredAgents,
			e.RequiredNewRows))
	}
}

// Describe implements observe.Event.
func (e RunFinished) Describe(d *observe.Description) {
	d.Show(observe.Activity, fmt.Sprintf("the run is finished (%s), with version %d", e.Reason, e.Version))
}
