package round

import (
	"errors"
	"time"

	"github.com/fedmesh/fedmesh/round/stop"
	"github.com/fedmesh/fedmesh/wire"
)

// Event is an input of a state machine: a message, the result of an effect, or the passage of time.
type Event interface{ event() }

// UpdateOffer is an update that an agent offers by sending its manifest (metadata, size and digest).
type UpdateOffer struct {
	Agent          wire.AgentID
	Boot           wire.Epoch // boot epoch, which identifies the agent's process
	Run            wire.RunID
	Round          wire.RoundID
	Update         wire.Update
	SignedManifest []byte // decrypted manifest with the agent's signature
	BlobSealer     *wire.BlobSealer
}

// Events that the machines of the coordinator and of the agent share.
type (
	// Tick is delivered when the time returned by the machine's Deadline method has passed.
	Tick struct{}
	// LinkUp is delivered when the connection to the broker is established.
	LinkUp struct{}
	// LinkDown is delivered when the connection to the broker is lost.
	LinkDown struct{}
)

// Events of the coordinator's machine. The host has verified that each agent's message has a valid signature, belongs
// to the federation, and is newer than the agent's previous messages.
type (
	// StartOrResumeRun is the first event. It begins a new run, or resumes the run from the record passed to
	// NewCoordinator.
	StartOrResumeRun struct{}
	// StorageFailed is delivered when the host cannot write data of the round to disk. If a round has no quorum at its
	// deadline, it then waits for the event StorageRecovered.
	StorageFailed struct{ FailingSince time.Time }
	// StorageRecovered is delivered when the host can write to disk again. The round's deadline is extended by the time
	// since StorageFailed.
	StorageRecovered struct{}
	// AnnouncementSent is delivered when the broker has received an announcement. The announcement may be new,
	// repeated, or published again after a reconnection.
	AnnouncementSent struct {
		Round   wire.RoundID
		Attempt wire.RoundAttempt
		Phase   wire.AnnouncementPhase
	}
	// HelloReceived is delivered when an agent's hello message has arrived.
	HelloReceived struct {
		Agent wire.AgentID
		Boot  wire.Epoch
		Hello wire.Hello
	}
	// PresenceReceived is delivered when an agent has published its presence, or when the broker has published that the
	// agent is disconnected.
	PresenceReceived struct {
		Agent wire.AgentID
		State wire.PresenceState
	}
	// AgentsRevoked is delivered when agents were removed from the list of agents, or when the entry of an agent in the
	// list was given to another device.
	AgentsRevoked struct{ Agents []wire.AgentID }
	// JoinedReceived is delivered when an invited agent reports that it has started its work.
	JoinedReceived struct {
		Agent wire.AgentID
		Round wire.RoundID
	}
	// DeclinedReceived is delivered when an invited agent reports that it does not participate.
	DeclinedReceived struct {
		Agent  wire.AgentID
		Round  wire.RoundID
		Reason wire.DeclineReason
	}
	// UpdateOfferReceived is delivered when the manifest of an agent's update has arrived.
	UpdateOfferReceived struct{ UpdateOffer }
	// UpdateStored is delivered when an update was completely received, checked and written. A power failure may still
	// lose the update.
	UpdateStored struct {
		Agent  wire.AgentID
		Round  wire.RoundID
		Update wire.Update
		Norm   float64 // Euclidean norm ‖Δ_k‖₂ of the update of agent k
	}
	// UpdateRejected is delivered when an agent's update failed a check, or when the transfer of the update was
	// abandoned.
	UpdateRejected struct {
		Agent        wire.AgentID
		Round        wire.RoundID
		UpdateDigest wire.Digest
		Reason       wire.UpdateRefusalReason
	}
	// OperatorCommandChanged is delivered when the operator has paused, resumed or stopped the run.
	OperatorCommandChanged struct {
		Command       OperatorCommand
		AbandonsRound bool // whether to abandon the current round instead of completing it
	}
	// EdgesReady is delivered when the host has computed the mixing edges requested by RequestEdges. Edges are sorted
	// by the ids (A, B) of their agents.
	EdgesReady struct {
		Round wire.RoundID
		Edges []MixingEdge
	}
	// EdgesAheadReady is delivered when the computation requested by RequestEdgesAhead has completed or failed.
	EdgesAheadReady struct{}
	// AggregationEnded is delivered when AggregateUpdates has ended. The new model is stored on disk and becomes the
	// current model when the next journal record is saved.
	AggregationEnded struct {
		Round        wire.RoundID
		NextPlan     Plan // plan of the next round, with the new model
		Measurements RoundMeasurements
		// Err is nil after a successful aggregation. Otherwise it is the reason why the round must be abandoned, for
		// example ErrSpoolDamaged, and NextPlan and Measurements are invalid.
		Err error
		// SpoilingAgents lists the agents whose updates would make the model unusable. They are excluded from the next
		// draws, even if the host could aggregate a model without their updates.
		SpoilingAgents []wire.AgentID
		AgentRisks     []stop.AgentRisk // risks of the base model, as reported by the participants
		// FateByLeftOutAgent maps each agent whose accepted update was left out of the model to the reason.
		FateByLeftOutAgent map[wire.AgentID]wire.UpdateFate
	}
)

// ErrSpoolDamaged means that the coordinator can no longer read an accepted update from its own disk. The agent that
// sent the update is not at fault.
var ErrSpoolDamaged = errors.New("the coordinator cannot read an accepted update from its disk")

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
