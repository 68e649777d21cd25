package round

import (
	"errors"
	"time"

	"github.com/fedmesh/fedmesh/round/stop"
	"github.com/fedmesh/fedmesh/wire"
)

// Event is an input of the machine: a message, a result of an effect, or a deadline that has passed.
type Event interface{ event() }

// UpdateOffer is an update that an agent offers by its manifest.
type UpdateOffer struct {
	Agent          wire.AgentID
	Boot           wire.Epoch // of the agent's process
	Run            wire.RunID
	Round          wire.RoundID
	Update         wire.Update
	SignedManifest []byte // the manifest as the agent signed it, decrypted if it was encrypted
	BlobSealer     *wire.BlobSealer
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

// The events. The host has verified the messages of agents: their signature and federation, and that each is newer than
// the messages before.
type (
	// StartOrResumeRun begins the run, or resumes it from the record given to NewCoordinator. It is the first event.
	StartOrResumeRun struct{}
	// StorageFailed: since the given time the host cannot write what the round needs. A round without a quorum at its
	// deadline waits for StorageRecovered.
	StorageFailed struct{ FailingSince time.Time }
	// StorageRecovered: the host can write again. The deadline of the round is later by the time since StorageFailed.
	StorageRecovered struct{}
	// AnnouncementSent: an announcement was sent to the broker: for the first time, on a new connection, or as a
	// repetition.
	AnnouncementSent struct {
		Round   wire.RoundID
		Attempt wire.RoundAttempt
		Phase   wire.AnnouncementPhase
	}
	// HelloReceived: a hello message of an agent has arrived.
	HelloReceived struct {
		Agent wire.AgentID
		Boot  wire.Epoch
		Hello wire.Hello
	}
	// PresenceReceived: an agent has published its presence, or the broker has published that the agent is lost.
	PresenceReceived struct {
		Agent wire.AgentID
		State wire.PresenceState
	}
	// AgentsRevoked: agents were removed from the list of agents, or another device has taken their entry.
	AgentsRevoked struct{ Agents []wire.AgentID }
	// JoinedReceived: an invited agent has begun its work for the current announcement.
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
	// UpdateOfferReceived: the manifest of an update has arrived.
	UpdateOfferReceived struct{ UpdateOffer }
	// UpdateStored: the whole update was received, checked and stored. A power cut may still lose it.
	UpdateStored struct {
		Agent  wire.AgentID
		Round  wire.RoundID
		Update wire.Update
		Norm   float64 // ‖Δ_k‖₂
	}
	// UpdateRejected: the update failed a check, or its transfer was given up.
	UpdateRejected struct {
		Agent        wire.AgentID
		Round        wire.RoundID
		UpdateDigest wire.Digest
		Reason       wire.UpdateRefusalReason
	}
	// OperatorCommandChanged: the operator has paused, resumed or stopped the run.
	OperatorCommandChanged struct {
		Command       OperatorCommand
		AbandonsRound bool // abandon the current round; otherwise it continues to its end
	}
	// EdgesReady is the result of RequestEdges, in the order of (A, B).
	EdgesReady struct {
		Round wire.RoundID
		Edges []MixingEdge
	}
	// EdgesAheadReady: RequestEdgesAhead is done, or has failed.
	EdgesAheadReady struct{}
	// AggregationEnded is the result of AggregateUpdates. The new model is on disk, and becomes valid with the next
	// journal record.
	AggregationEnded struct {
		Round        wire.RoundID
		NextPlan     Plan // of the next round, which has the new model
		Measurements RoundMeasurements
		// Err is why the round is abandoned; NextPlan and Measurements are then void. See ErrSpoolDamaged.
		Err error
		// SpoilingAgents are agents whose updates make the aggregate unusable. They are sidelined for the next draws,
		// whether a model was made without their updates or not.
		SpoilingAgents []wire.AgentID
		AgentRisks     []stop.AgentRisk // risks of the base model, as reported by the participants
		// FateByLeftOutAgent names the agents whose updates were left out of the model, and why.
		FateByLeftOutAgent map[wire.AgentID]wire.UpdateFate
	}
)

// ErrSpoolDamaged means that an accepted update can no longer be read from the coordinator's disk. No agent is at
// fault.
var ErrSpoolDamaged = errors.New("an accepted update cannot be read from the coordinator's disk")

func (Tick) event()                   {}
func (LinkUp) event()                 {}
func (LinkDown) event()               {}
func (StartOrResumeRun) event()       {}
func (StorageFailed) event()          {}
func (StorageRecovered) event()       {}
func (AnnouncementSent) event()       {}
func (HelloReceived) event()          {}
func (PresenceReceived) event()       {}
func (AgentsRevoked) event()          {}
func (JoinedReceived) event()         {}
func (DeclinedReceived) event()       {}
func (UpdateOfferReceived) event()    {}
func (UpdateStored) event()           {}
func (UpdateRejected) event()         {}
func (OperatorCommandChanged) event() {}
func (EdgesReady) event()             {}
func (EdgesAheadReady) event()        {}
func (AggregationEnded) event()       {}
