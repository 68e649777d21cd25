package agentround

import (
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// Event is an input of the machine: a message, the result of an effect, or the passage of time.
type Event interface{ event() }

// Events of the connection and of the clock.
type (
	// Tick is delivered when the time returned by Machine.Deadline has passed.
	Tick struct{}
	// LinkUp is delivered when the connection to the broker is established.
	LinkUp struct{}
	// LinkDown is delivered when the connection to the broker is lost.
	LinkDown struct{}
)

// Events of the agent's machine. The host has verified that the coordinator's messages have a valid signature and
// belong to the federation.
type (
	// AnnouncementReceived is delivered when the coordinator's announcement has arrived. The announcement is a retained
	// message for all agents.
	AnnouncementReceived struct {
		Position       wire.AnnouncementPosition
		EnvelopeDigest wire.Digest // digest of the signed message that contains the announcement
		Announcement   wire.Announcement
		IsRetained     bool // whether the broker sent its stored copy of the message, which may be old
		// factor by which the agent multiplies its local step size; 0 if the announcement does not list the agent as
		// drawn
		StepWeight float64
	}
	// AnnouncementPositionSaved is delivered when the host has saved an announcement's position or failed to save it.
	// After a failure, the host delivers a second event if it can save the position later.
	AnnouncementPositionSaved struct {
		Position   wire.AnnouncementPosition
		SaveFailed bool
	}
	// InvitationReceived is delivered when the coordinator invites this agent to a round.
	InvitationReceived struct {
		AnnouncementDigest wire.Digest
		TimeLeft           time.Duration
		StepWeight         float64
		MustUpload         bool
		MixingBlockRound   wire.RoundID
		MixingPeers        []wire.MixingPeer
		EndedEdges         []wire.EndedEdge
		// number of rows that the coordinator knows from the agent's last hello message; 0 means unknown
		KnownRowCount uint64
		// error that names the parts of the invitation that this version of the agent does not support; nil if it
		// supports all
		UnsupportedErr error
	}
	// RoundStandingReceived is delivered when the coordinator has answered a hello message of this agent.
	RoundStandingReceived struct {
		AnnouncementDigest wire.Digest
		Standing           wire.SelectionStatus
		KnownRowCount      uint64 // number of rows in the agent's last acknowledged hello message
	}
	// UpdateAcceptanceReceived is delivered when the coordinator reports that it has stored the update.
	UpdateAcceptanceReceived struct {
		Run          wire.RunID
		Round        wire.RoundID
		UpdateDigest wire.Digest
	}
	// UpdateRefusalReceived is delivered when the coordinator has refused the update.
	UpdateRefusalReceived struct {
		Run          wire.RunID
		Round        wire.RoundID
		UpdateDigest wire.Digest
		Reason       wire.UpdateRefusalReason
	}
	// TaskChecked is delivered when PrepareTask has compared the local data with the task.
	TaskChecked struct {
		TaskDigest  wire.Digest
		UnfitReason wire.DeclineReason // reason why the local data do not fit the task; 0 means they fit
		RowCount    uint64
		// StatisticsUpdateBytes is the size of the update that the agent sends in a statistics round.
		StatisticsUpdateBytes uint32
	}
	// FetchStalled is delivered when a download has made no progress for a long time. The broker may have lost the
	// data, so the agent sends the coordinator a hello message to request them.
	FetchStalled struct {
		// NeededBeyondRound is true if the agent also needs the data outside the current round, for example the model
		// for predictions.
		NeededBeyondRound bool
	}
	// DownloadDataMissing is delivered when the broker does not have the data of a download. The agent sends a hello
	// message at once, so that the coordinator publishes the data again.
	DownloadDataMissing struct{}
	// UpdateFateUnknown is delivered when the host cannot find out whether an update was aggregated. The agent then
	// asks the coordinator in a hello.
	UpdateFateUnknown struct{}
	// EvaluationDone is delivered when the agent has evaluated a model. The next hello message contains the result.
	EvaluationDone struct{}
	// NeighborsChanged is delivered when the set of reachable neighbours has changed. The agent's next hello message
	// reports the new set.
	NeighborsChanged struct{}
	// NewRowsAvailable is delivered when enough rows have arrived since the last hello message to justify a new one.
	NewRowsAvailable struct{}
	// UplinkBudgetChanged sets the number of bytes that the agent may still send this month. Without this event the
	// number is unlimited.
	UplinkBudgetChanged struct{ BytesLeft uint64 }
	// OwnerRuleChanged is delivered when a rule of the device's owner starts or stops forbidding rounds. The agent
	// declines every round while at least one rule forbids rounds.
	OwnerRuleChanged struct {
		RuleName string             // name of the rule, or of the component that applies the rule
		Reason   wire.DeclineReason // reason for declining rounds; 0 means that the rule allows rounds
	}
	// ModelFetched is delivered when FetchModel has downloaded the base model or failed.
	ModelFetched struct {
		BaseModelDigest wire.Digest
		FetchFailed     bool
	}
	// TrainingEnded is delivered when the training started by StartTraining has ended or failed.
	TrainingEnded struct {
		Run          wire.RunID
		Round        wire.RoundID
		UpdateDigest wire.Digest
		// reason for the failure of the training; 0 means that UpdateDigest is valid
		FailureReason wire.DeclineReason
		// HasEdgeReport is true if the agent has measurements of its mixing edges. An agent that sends no update
		// reports these measurements in a hello.
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
