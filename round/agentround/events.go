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
		IsRetained     bool    // the broker sent its stored copy, which may be old
		StepWeight     float64 // factor of the agent's local step size if the announcement names it as drawn; else 0
	}
	// AnnouncementPositionSaved is the result of SaveAnnouncementPosition, unless a later SaveAnnouncementPosition has
	// replaced it. After a failure a second one may follow, when the disk has recovered.
	AnnouncementPositionSaved struct {
		Position   wire.AnnouncementPosition
		SaveFailed bool
	}
	// InvitationReceived: this agent is invited to the round.
	InvitationReceived struct {
		AnnouncementDigest wire.Digest
		TimeLeft           time.Duration
		StepWeight         float64
		MustUpload         bool
		MixingBlockRound   wire.RoundID
		MixingPeers        []wire.MixingPeer
		EndedEdges         []wire.EndedEdge
		KnownRowCount      uint64 // number of rows that the coordinator knows of; 0 = unknown
		UnsupportedErr     error  // names the parts of the invitation that this version does not support; nil if none
	}
	// RoundStandingReceived: the coordinator has answered a hello.
	RoundStandingReceived struct {
		AnnouncementDigest wire.Digest
		Standing           wire.SelectionStatus
		KnownRowCount      uint64 // number of rows that the coordinator knows of
	}
	// UpdateAcceptanceReceived: the coordinator has stored the update.
	UpdateAcceptanceReceived struct {
		Run          wire.RunID
		Round        wire.RoundID
		UpdateDigest wire.Digest
	}
	// UpdateRefusalReceived: the coordinator has refused the update.
	UpdateRefusalReceived struct {
		Run          wire.RunID
		Round        wire.RoundID
		UpdateDigest wire.Digest
		Reason       wire.UpdateRefusalReason
	}
	// TaskChecked is the result of PrepareTask.
	TaskChecked struct {
		TaskDigest  wire.Digest
		UnfitReason wire.DeclineReason // 0 = the local data fit the task
		RowCount    uint64
		// StatisticsUpdateBytes is the size of the update of a statistics round.
		StatisticsUpdateBytes uint32
	}
	// FetchStalled: a download has made no progress for long. The broker may have lost the data, so the agent sends the
	// coordinator a hello.
	FetchStalled struct {
		// NeededBeyondRound means that the agent needs the data even if it was not drawn to answer.
		NeededBeyondRound bool
	}
	// DownloadDataMissing: the broker does not have the data of a download. The agent sends a hello at once, so that
	// the coordinator publishes them again.
	DownloadDataMissing struct{}
	// UpdateFateUnknown: the next hello must ask for the outcome of an update.
	UpdateFateUnknown struct{}
	// EvaluationDone: the next hello reports an evaluation.
	EvaluationDone struct{}
	// NeighborsChanged: the neighbours that the next hello reports have changed.
	NeighborsChanged struct{}
	// NewRowsAvailable: there are enough new rows, and the last hello did not report them.
	NewRowsAvailable struct{}
	// UplinkBudgetChanged sets how many bytes the agent may still send in this month. The default is no limit.
	UplinkBudgetChanged struct{ BytesLeft uint64 }
	// OwnerRuleChanged sets whether one of the owner's rules prevents the device from beginning a round. The agent
	// declines while any rule prevents it, with the reason of the first rule by name.
	OwnerRuleChanged struct {
		RuleName string             // name of the rule, or of the part that has it
		Reason   wire.DeclineReason // 0 = the rule allows rounds
	}
	// ModelFetched is the result of FetchModel.
	ModelFetched struct {
		BaseModelDigest wire.Digest
		FetchFailed     bool
	}
	// TrainingEnded is the result of Train.
	TrainingEnded struct {
		Run           wire.RunID
		Round         wire.RoundID
		UpdateDigest  wire.Digest
		FailureReason wire.DeclineReason // 0 = UpdateDigest is valid
		// HasEdgeReport means that the agent has measured edges. If it sends no update, a hello reports them.
		HasEdgeReport bool
	}
)

func (Tick) event()                      {}
func (LinkUp) event()                    {}
func (LinkDown) event()                  {}
func (AnnouncementReceived) event()      {}
func (AnnouncementPositionSaved) event() {}
func (InvitationReceived) event()        {}
func (RoundStandingReceived) event()     {}
func (UpdateAcceptanceReceived) event()  {}
func (UpdateRefusalReceived) event()     {}
func (TaskChecked) event()               {}
func (FetchStalled) event()              {}
func (DownloadDataMissing) event()       {}
func (UpdateFateUnknown) event()         {}
func (EvaluationDone) event()            {}
func (NeighborsChanged) event()          {}
func (NewRowsAvailable) event()          {}
func (UplinkBudgetChanged) event()       {}
func (OwnerRuleChanged) event()          {}
func (ModelFetched) event()              {}
func (TrainingEnded) event()             {}
