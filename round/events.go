package round

import (
	"errors"
	"time"

	"github.com/fedmesh/fedmesh/round/stop"
	"github.com/fedmesh/fedmesh/wire"
)

// Event is something that a host tells a machine.
type Event interface{ event() }

// Offer is an update that an agent offers by its manifest.
type Offer struct {
	Agent          wire.AgentID
	Boot           wire.Epoch // of the agent's process
	Run            wire.RunID
	Round          wire.RoundID
	Update         wire.Update
	SignedManifest []byte // the manifest as the agent signed it; if it was sealed, as it was inside
	Seal           *wire.BlobSeal
}

// Events of both machines.
type (
	// Tick says that time has passed.
	Tick struct{}
	// LinkUp says that the broker is connected.
	LinkUp struct{}
	// LinkDown says that it is not.
	LinkDown struct{}
)

// Events of the coordinator's machine. A message of an agent has been
// verified: signature, federation, and that it is newer than what came before.
type (
	// Start begins the run, or resumes it from the record given to NewCoordinator. It comes first.
	Start struct{}
	// StorageFailed: since then the host cannot write what the round needs. A round
	// that has no quorum at its deadline waits until StorageMended.
	StorageFailed struct{ Since time.Time }
	// StorageRecovered: the time since StorageFailed is added to the round's.
	StorageRecovered struct{}
	// AnnouncementSent: an announcement has gone out to the broker: the first time, on a new link, or because it had to
	// be repeated.
	AnnouncementSent struct {
		Round   wire.RoundID
		Attempt wire.Attempt
		Phase   wire.AnnouncementPhase
	}
	// HelloReceived: an agent says hello.
	HelloReceived struct {
		Agent wire.AgentID
		Boot  wire.Epoch
		Hello wire.Hello
	}
	// PresenceReceived: an agent's presence, or the broker's word that it is lost.
	PresenceReceived struct {
		Agent wire.AgentID
		State wire.PresenceState
	}
	// AgentsRevoked: agents are no longer in the list of those that may take part, or other devices have their places
	// there.
	AgentsRevoked struct{ Agents []wire.AgentID }
	// JoinedReceived: an invited agent is at work. It names the current announcement.
	JoinedReceived struct {
		Agent wire.AgentID
		Round wire.RoundID
	}
	// DeclinedReceived: an invited agent does not take part.
	DeclinedReceived struct {
		Agent  wire.AgentID
		Round  wire.RoundID
		Reason wire.DeclineReason
	}
	// OfferReceived: an update's manifest.
	OfferReceived struct{ Offer }
	// UpdateStored: the whole update is here and passed all checks. It need not outlive a power cut.
	UpdateStored struct {
		Agent  wire.AgentID
		Round  wire.RoundID
		Update wire.Update
		Norm   float64 // ‖Δ_k‖₂
	}
	// UpdateRejected: the update failed a check, or its transfer gave up.
	UpdateRejected struct {
		Agent  wire.AgentID
		Round  wire.RoundID
		Update wire.Digest
		Reason wire.UpdateRefusalReason
	}
	// CourseChanged: a person decides how the run goes on. Now gives up the round that is collecting; else it goes on
	// to its end.
	CourseChanged struct {
		Course        RunCourse
		AbandonsRound bool
	}
	// EdgesReady: the edges that Mesh asked for, in the order of (A, B).
	EdgesReady struct {
		Round wire.RoundID
		Edges []Edge
	}
	// EdgesAheadReady: the edges that RequestEdgesAhead asked for are here, or cannot be made.
	EdgesAheadReady struct{}
	// Aggregated: the round's set is aggregated; Next is what comes after it. Its model is on disk, and counts with the
	// next Journal.
	Aggregated struct {
		Round        wire.RoundID
		NextPlan     Plan
		Measurements RoundMeasurements
		Err          error // then Next and Measured are void, and the round is abandoned; see ErrSpool
		// SpoilingAgents are the agents whose updates spoiled the fold: they sit out the next draws, whether there is a
		// Next without their updates or not.
		SpoilingAgents []wire.AgentID
		AgentRisks     []stop.AgentRisk // risks of the base model that the agents of the set reported
		// FateByLeftOutAgent are the agents without whose updates Next was made, and why.
		FateByLeftOutAgent map[wire.AgentID]wire.UpdateFate
	}
)

// ErrSpool says of a set that the host could not read an update as it was accepted: its disk is at fault, and no agent.
var ErrSpool = errors.New("an accepted update cannot be read from the coordinator's disk")

func (Tick) event()             {}
func (LinkUp) event()           {}
func (LinkDown) event()         {}
func (Start) event()            {}
func (StorageFailed) event()    {}
func (StorageRecovered) event() {}
func (AnnouncementSent) event() {}
func (HelloReceived) event()    {}
func (PresenceReceived) event() {}
func (AgentsRevoked) event()    {}
func (JoinedReceived) event()   {}
func (DeclinedReceived) event() {}
func (OfferReceived) event()    {}
func (UpdateStored) event()     {}
func (UpdateRejected) event()   {}
func (CourseChanged) event()    {}
func (EdgesReady) event()       {}
func (EdgesAheadReady) event()  {}
func (Aggregated) event()       {}

// Events of the agent's machine. A message of the coordinator has been
// verified: signature and federation.
type (
	// AnnouncementReceived: what the coordinator retains for all.
	AnnouncementReceived struct {
		Position       wire.AnnouncementPosition
		EnvelopeDigest wire.Digest // of its envelope
		Announcement   wire.Announcement
		Retained       bool    // the broker had kept it: nobody knows for how long
		StepWeight     float64 // of this agent's local step size, if the selection names it; else 0
	}
	// PositionSaved answers Obey, but for one that a later one has overtaken. After Failed it may come once more, when
	// the disk has taken what it did not take before.
	PositionSaved struct {
		Position wire.AnnouncementPosition
		Failed   bool
	}
	// InvitationReceived: this agent is asked to take part.
	InvitationReceived struct {
		AnnouncementDigest wire.Digest
		TimeLeft           time.Duration
		StepWeight         float64
		MustUpload         bool
		EdgeBlockRound     wire.RoundID
		MixingPeers        []wire.Peer
		EndedEdges         []wire.EndedEdge
		Samples            uint64 // rows that the coordinator knows of; 0 = not known
		UnsupportedErr     error  // names what this build would have to know of it; nil if there is nothing
	}
	// RoundStandingReceived: an answer to a hello.
	RoundStandingReceived struct {
		AnnouncementDigest wire.Digest
		Standing           wire.RoundStanding
		Samples            uint64 // rows that the coordinator knows of
	}
	// AcceptanceReceived: the running coordinator holds the update.
	AcceptanceReceived struct {
		Run    wire.RunID
		Round  wire.RoundID
		Update wire.Digest
	}
	// RefusalReceived: the update will not be taken.
	RefusalReceived struct {
		Run    wire.RunID
		Round  wire.RoundID
		Update wire.Digest
		Reason wire.UpdateRefusalReason
	}
	// TaskChecked answers Prepare.
	TaskChecked struct {
		Task        wire.Digest
		UnfitReason wire.DeclineReason // 0 = the data fit
		Samples     uint64
		// StatisticsUpdateBytes is how many bytes the update of a statistics round has.
		StatisticsUpdateBytes uint32
	}
	// FetchStalled: what is being fetched has not come for long. The broker may have
	// lost it, and the coordinator, which would have said so, is told by a hello.
	FetchStalled struct {
		// NeededBeyondRound the round: the agent needs it also when it is not drawn to answer, and says so.
		NeededBeyondRound bool
	}
	// PartsMissing: the broker does not return what is being fetched. The coordinator is asked for it by a hello, at
	// once.
	PartsMissing struct{}
	// UpdateOutcomeUnknown: the outcome of an update is still to be asked for.
	UpdateOutcomeUnknown struct{}
	// EvaluationDone: the next hello says what has come of an evaluation.
	EvaluationDone struct{}
	// NeighborsFound: what the next hello says of the agent's neighbours has changed.
	NeighborsFound struct{}
	// NewRowsAvailable: what the last hello has said of new rows is not so any more, and there are enough.
	NewRowsAvailable struct{}
	// UplinkBudgetChanged says how many bytes the agent's uplink may still carry in this
	// month. Without one it may carry any number.
	UplinkBudgetChanged struct{ BytesLeft uint64 }
	// OwnerBarredRounds says whether one of the owner's rules bars the device from beginning a round now. The agent
	// declines while any rule bars it, with the reason of the first one by name.
	OwnerBarredRounds struct {
		Rule   string             // the name of the rule, or of the part that has it
		Reason wire.DeclineReason // 0 = the rule does not bar it
	}
	// ModelFetched answers FetchModel.
	ModelFetched struct {
		Base   wire.Digest
		Failed bool
	}
	// Trained answers Train: the update is here, or could not be made.
	Trained struct {
		Run           wire.RunID
		Round         wire.RoundID
		UpdateDigest  wire.Digest
		FailureReason wire.DeclineReason // 0 = Update is valid
		// HasEdgeReport is that it has measured edges, and the coordinator hears of it by a hello if no update is sent.
		HasEdgeReport bool
	}
)

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
