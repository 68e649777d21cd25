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
	Agent  wire.AgentID
	Boot   wire.Epoch // of the agent's process
	Run    wire.RunID
	Round  wire.RoundID
	Update wire.Update
	Sealed []byte // the manifest as the agent signed it; if it was sealed, as it was inside
	Seal   *wire.BlobSeal
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
	// StorageMended: the time since StorageFailed is added to the round's.
	StorageMended struct{}
	// Announced: an announcement has gone out to the broker: the first time, on a new link, or because it had to be
	// repeated.
	Announced struct {
		Round   wire.RoundID
		Attempt wire.Attempt
		Phase   wire.Phase
	}
	// HelloCame: an agent says hello.
	HelloCame struct {
		Agent wire.AgentID
		Boot  wire.Epoch
		Hello wire.Hello
	}
	// PresenceCame: an agent's presence, or the broker's word that it is lost.
	PresenceCame struct {
		Agent wire.AgentID
		State wire.State
	}
	// Revoked: agents are no longer in the list of those that may take part, or other devices have their places there.
	Revoked struct{ Agents []wire.AgentID }
	// JoinedCame: an invited agent is at work. It names the current announcement.
	JoinedCame struct {
		Agent wire.AgentID
		Round wire.RoundID
	}
	// DeclinedCame: an invited agent does not take part.
	DeclinedCame struct {
		Agent  wire.AgentID
		Round  wire.RoundID
		Reason wire.DeclineReason
	}
	// OfferCame: an update's manifest.
	OfferCame struct{ Offer }
	// Stored: the whole update is here and passed all checks. It need not outlive a power cut.
	Stored struct {
		Agent  wire.AgentID
		Round  wire.RoundID
		Update wire.Update
		Norm   float64 // ‖Δ_k‖₂
	}
	// Rejected: the update failed a check, or its transfer gave up.
	Rejected struct {
		Agent  wire.AgentID
		Round  wire.RoundID
		Update wire.Digest
		Reason wire.RefuseReason
	}
	// Steered: a person decides how the run goes on. Now gives up the round that is collecting; else it goes on to its
	// end.
	Steered struct {
		Course Course
		Now    bool
	}
	// Meshed: the edges that Mesh asked for, in the order of (A, B).
	Meshed struct {
		Round wire.RoundID
		Edges []Edge
	}
	// MeshedAhead: the edges that MeshAhead asked for are here, or cannot be made.
	MeshedAhead struct{}
	// Folded: the round's set is aggregated; Next is what comes after it. Its model is on disk, and counts with the
	// next Journal.
	Folded struct {
		Round    wire.RoundID
		Next     Plan
		Measured Measured
		Err      error // then Next and Measured are void, and the round is abandoned; see ErrSpool
		// Excluded are the agents whose updates spoiled the fold: they sit out the next draws, whether there is a Next
		// without their updates or not.
		Excluded []wire.AgentID
		Told     []stop.AgentRisk // risks of the base model that the agents of the set reported
		// LeftOut are the agents without whose updates Next was made, and why.
		LeftOut map[wire.AgentID]wire.Fate
	}
)

// ErrSpool says of a set that the host could not read an update as it was accepted: its disk is at fault, and no agent.
var ErrSpool = errors.New("an accepted update cannot be read from the coordinator's disk")

func (Tick) event()          {}
func (LinkUp) event()        {}
func (LinkDown) event()      {}
func (Start) event()         {}
func (StorageFailed) event() {}
func (StorageMended) event() {}
func (Announced) event()     {}
func (HelloCame) event()     {}
func (PresenceCame) event()  {}
func (Revoked) event()       {}
func (JoinedCame) event()    {}
func (DeclinedCame) event()  {}
func (OfferCame) event()     {}
func (Stored) event()        {}
func (Rejected) event()      {}
func (Steered) event()       {}
func (Meshed) event()        {}
func (MeshedAhead) event()   {}
func (Folded) event()        {}

// Events of the agent's machine. A message of the coordinator has been
// verified: signature and federation.
type (
	// AnnouncementCame: what the coordinator retains for all.
	AnnouncementCame struct {
		Order        wire.Order
		Digest       wire.Digest // of its envelope
		Announcement wire.Announcement
		Retained     bool    // the broker had kept it: nobody knows for how long
		Weight       float64 // of this agent's local step size, if the selection names it; else 0
	}
	// Obeyed answers Obey, but for one that a later one has overtaken. After Failed it may come once more, when the
	// disk has taken what it did not take before.
	Obeyed struct {
		Order  wire.Order
		Failed bool
	}
	// Invited: this agent is asked to take part.
	Invited struct {
		Announcement wire.Digest
		Left         time.Duration
		Weight       float64
		Uploads      bool
		Block        wire.RoundID
		Peers        []wire.Peer
		Ended        []wire.EndedEdge
		Samples      uint64 // rows that the coordinator knows of; 0 = not known
		Unknown      error  // names what this build would have to know of it; nil if there is nothing
	}
	// StandingCame: an answer to a hello.
	StandingCame struct {
		Announcement wire.Digest
		Place        wire.Place
		Samples      uint64 // rows that the coordinator knows of
	}
	// AcceptedCame: the running coordinator holds the update.
	AcceptedCame struct {
		Run    wire.RunID
		Round  wire.RoundID
		Update wire.Digest
	}
	// RefusedCame: the update will not be taken.
	RefusedCame struct {
		Run    wire.RunID
		Round  wire.RoundID
		Update wire.Digest
		Reason wire.RefuseReason
	}
	// Prepared answers Prepare.
	Prepared struct {
		Task    wire.Digest
		Unfit   wire.DeclineReason // 0 = the data fit
		Samples uint64
		// Statistics is how many bytes the update of a statistics round has.
		Statistics uint32
	}
	// Stranded: what is being fetched has not come for long. The broker may have
	// lost it, and the coordinator, which would have said so, is told by a hello.
	Stranded struct {
		// Beyond the round: the agent needs it also when it is not drawn to answer, and says so.
		Beyond bool
	}
	// Lacking: the broker does not return what is being fetched. The coordinator is asked for it by a hello, at once.
	Lacking struct{}
	// Unread: the outcome of an update is still to be asked for.
	Unread struct{}
	// Evaluated: the next hello says what has come of an evaluation.
	Evaluated struct{}
	// NeighborsFound: what the next hello says of the agent's neighbours has changed.
	NeighborsFound struct{}
	// RowsCame: what the last hello has said of new rows is not so any more, and there are enough.
	RowsCame struct{}
	// Budgeted says how many bytes the agent's uplink may still carry in this
	// month. Without one it may carry any number.
	Budgeted struct{ Left uint64 }
	// Barred says why the device's owner does not let it begin a round now; 0 = it may.
	Barred struct{ Reason wire.DeclineReason }
	// Fetched answers FetchModel.
	Fetched struct {
		Base   wire.Digest
		Failed bool
	}
	// Trained answers Train: the update is here, or could not be made.
	Trained struct {
		Run    wire.RunID
		Round  wire.RoundID
		Update wire.Digest
		Failed wire.DeclineReason // 0 = Update is valid
		// Tells is that it has measured edges, and the coordinator hears of it by a hello if no update is sent.
		Tells bool
	}
)

func (AnnouncementCame) event() {}
func (Obeyed) event()           {}
func (Invited) event()          {}
func (StandingCame) event()     {}
func (AcceptedCame) event()     {}
func (RefusedCame) event()      {}
func (Prepared) event()         {}
func (Stranded) event()         {}
func (Lacking) event()          {}
func (Unread) event()           {}
func (Evaluated) event()        {}
func (NeighborsFound) event()   {}
func (RowsCame) event()         {}
func (Budgeted) event()         {}
func (Barred) event()           {}
func (Fetched) event()          {}
func (Trained) event()          {}
