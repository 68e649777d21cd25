package agentround

import (
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// Event is an input of the machine: a message, a result of an effect, or a deadline that has passed.
type Event interface{ event() }

// Events of the connection and of the clock.
type (
	// Tick: time has passed.
	Tick struct{}
	// LinkUp: the agent is connected to the broker.
	LinkUp struct{}
	// LinkDown: the connection to the broker is lost.
	LinkDown struct{}
)

// The events. The host has verified the messages of the coordinator: their signature and federation.
type (
	// AnnouncementReceived: the announcement, which is a retained message for all agents.
	AnnouncementReceived struct {
		Position       wire.AnnouncementPosition
		EnvelopeDigest wire.Digest // digest of the signed envelope
		Announcement   wire.Announcement
		Retained       bool    // the broker sent its stored copy, which may be old
		StepWeight     float64 // factor of the agent's local step size if the announcement names it as drawn; else 0
	}
	// PositionSaved is the result of SavePosition, unless a later SavePosition has replaced it. After a failure a
	// second one may follow, when the disk has recovered.
	PositionSaved struct {
		Position wire.AnnouncementPosition
		Failed   bool
	}
	// InvitationReceived: this agent is invited to the round.
	InvitationReceived struct {
		AnnouncementDigest wire.Digest
		TimeLeft           time.Duration
		StepWeight         float64
		MustUpload         bool
		EdgeBlockRound     wire.RoundID
		MixingPeers        []wire.Peer
		EndedEdges         []wire.EndedEdge
		Samples            uint64 // number of rows that the coordinator knows of; 0 = unknown
		UnsupportedErr     error  // names the parts of the invitation that this version does not support; nil if none
	}
	// RoundStandingReceived: the coordinator has answered a hello.
	RoundStandingReceived struct {
		AnnouncementDigest wire.Digest
		Standing           wire.RoundStanding
		Samples            uint64 // number of rows that the coordinator knows of
	}
	// AcceptanceReceived: the coordinator has stored the update.
	AcceptanceReceived struct {
		Run    wire.RunID
		Round  wire.RoundID
		Update wire.Digest
	}
	// RefusalReceived: the coordinator has refused the update.
	RefusalReceived struct {
		Run    wire.RunID
		Round  wire.RoundID
		Update wire.Digest
		Reason wire.UpdateRefusalReason
	}
	// TaskChecked is the result of PrepareTask.
	TaskChecked struct {
		Task        wire.Digest
		UnfitReason wire.DeclineReason // 0 = the local data fit the task
		Samples     uint64
		// StatisticsUpdateBytes is the size of the update of a statistics round.
		StatisticsUpdateBytes uint32
	}
	// FetchStalled: a download has made no progress for long. The broker may have lost the data, so the agent sends the
	// coordinator a hello.
	FetchStalled struct {
		// NeededBeyondRound means that the agent needs the data even if it was not drawn to answer.
		NeededBeyondRound bool
	}
	// PartsMissing: the broker does not have the data of a download. The agent sends a hello at once, so that the
	// coordinator publishes them again.
	PartsMissing struct{}
	// UpdateOutcomeUnknown: the next hello must ask for the outcome of an update.
	UpdateOutcomeUnknown struct{}
	// EvaluationDone: the next hello reports an evaluation.
	EvaluationDone struct{}
	// NeighborsFound: the neighbours that the next hello reports have changed.
	NeighborsFound struct{}
	// NewRowsAvailable: there are enough new rows, and the last hello did not report them.
	NewRowsAvailable struct{}
	// UplinkBudgetChanged sets how many bytes the agent may still send in this month. The default is no limit.
	UplinkBudgetChanged struct{ BytesLeft uint64 }
	// OwnerBarredRounds sets whether one of the owner's rules prevents the device from beginning a round. The agent
	// declines while any rule prevents it, with the reason of the first rule by name.
	OwnerBarredRounds struct {
		Rule   string             // name of the rule, or of the part that has it
		Reason wire.DeclineReason // 0 = the rule allows rounds
	}
	// ModelFetched is the result of FetchModel.
	ModelFetched struct {
		Base   wire.Digest
		Failed bool
	}
	// Trained is the result of Train.
	Trained struct {
		Run           wire.RunID
		Round         wire.RoundID
		UpdateDigest  wire.Digest
		FailureReason wire.DeclineReason // 0 = UpdateDigest is valid
		// HasEdgeReport means that the agent has measured edges. If it sends no update, a hello reports them.
		HasEdgeReport bool
	}
)

func (Tick) event()                  {}
func (LinkUp) event()                {}
func (LinkDown) event()              {}
func (AnnouncementReceived) event()  {}
func (PositionSaved) event()         {}
func (InvitationReceived) event()    {}
func (RoundStandingReceived) event() {}
func (AcceptanceReceived) event()    {}
func (RefusalReceived) event()       {}
func (TaskChecked) event()           {}
func (FetchStalled) event()          {}
func (PartsMissing) event()          {}
func (UpdateOutcomeUnknown) event()  {}
func (EvaluationDone) event()        {}
func (NeighborsFound) event()        {}
func (NewRowsAvailable) event()      {}
func (UplinkBudgetChanged) event()   {}
func (OwnerBarredRounds) event()     {}
func (ModelFetched) event()          {}
func (Trained) event()               {}
