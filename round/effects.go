package round

import (
	"time"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/evaluation"
	"github.com/fedmesh/fedmesh/round/stop"
	"github.com/fedmesh/fedmesh/wire"
)

// Effect is something that the machine asks its host to do.
type Effect interface{ effect() }

// Effects of both machines.
type (
	// ReportEvent passes an event to the observer.
	ReportEvent struct{ Event observe.Event }
)

// SelectedAgent is an agent that was drawn for a round.
type SelectedAgent struct {
	Agent      wire.AgentID
	StepWeight float64 // factor of its local step size
}

// Effects of the coordinator's machine.
type (
	// SaveJournalRecord saves the record, from which a restart resumes. The host performs the next effect when the
	// record is on disk.
	SaveJournalRecord struct{ Record JournalRecord }
	// PublishAnnouncement publishes the announcement as a retained message, after the task and the model that it refers
	// to. The result is AnnouncementSent.
	PublishAnnouncement struct {
		Round        wire.RoundID
		Announcement wire.Announcement
		// SelectedAgents are the agents that the announcement names as drawn, in id order. If there are none, the
		// drawn agents receive invitations.
		SelectedAgents []SelectedAgent
	}
	// SendInvitation sends an invitation for the current announcement.
	SendInvitation struct {
		Agent            wire.AgentID
		TimeLeft         time.Duration
		StepWeight       float64
		MustUpload       bool // it must send its update, and not only train and mix
		MixingBlockRound wire.RoundID
		MixingPeers      []wire.MixingPeer
		EndedEdges       []wire.EndedEdge
		KnownRowCount    uint64 // its number of rows, from its last hello before the draw
	}
	// RequestEdges computes the edges between the agents of the next round, which are in id order. The result is
	// EdgesReady.
	RequestEdges struct {
		Round  wire.RoundID
		Agents []MixingAgent
	}
	// RequestEdgesAhead computes edges during a round, for the next RequestEdges with the same agents. The result is
	// EdgesAheadReady.
	RequestEdgesAhead struct{ Agents []MixingAgent }
	// SendRoundStanding answers the hello of an agent: whether it takes part in the current round.
	SendRoundStanding struct {
		Agent         wire.AgentID
		Standing      wire.SelectionStatus
		KnownRowCount uint64 // its number of rows, from its newest hello
	}
	// ReceiveUpdate begins or continues the transfer of an offered update. The result is UpdateStored or
	// UpdateRejected.
	ReceiveUpdate struct{ UpdateOffer }
	// SendUpdateAcceptance sends an agent the message that its update is stored or aggregated. The agent stops sending
	// it.
	SendUpdateAcceptance struct {
		Agent        wire.AgentID
		Round        wire.RoundID
		UpdateDigest wire.Digest
	}
	// SendUpdateRefusal sends an agent the message that its update is refused, and ends the transfer. Run and Round are
	// those of the update; they may differ from the current ones.
	SendUpdateRefusal struct {
		Agent        wire.AgentID
		Run          wire.RunID
		Round        wire.RoundID
		UpdateDigest wire.Digest
		Reason       wire.UpdateRefusalReason
	}
	// SendUpdateFate sends an agent the outcome of its update of an earlier round.
	SendUpdateFate struct {
		Agent        wire.AgentID
		Round        wire.RoundID
		UpdateDigest wire.Digest
		Fate         wire.UpdateFate
	}
	// AggregateUpdates computes the next model from the accepted updates, and saves it beside the current one. The
	// result is AggregationEnded.
	AggregateUpdates struct {
		Round         wire.RoundID
		Plan          Plan
		Contributions []Contribution
		// MostParticipantsDiverged is true if the local steps of most participants diverged from the base model.
		MostParticipantsDiverged bool
	}
	// WriteHistory appends the line of an ended round to the history, before the next journal record is saved. The
	// journal already has the outcome, so a restart repeats this effect; the host does not write a line twice.
	WriteHistory struct {
		Run        wire.RunID
		Outcome    RoundOutcome
		StopReason stop.Reason // why the run ends with this round; empty if it continues
	}
	// ReportEvaluation reports the agents' evaluation of a model and writes it to the history. A restart before the
	// next journal record repeats this effect; the host does not write a line twice.
	ReportEvaluation struct {
		Run              wire.RunID
		Round            wire.RoundID // the current or the last round
		Version          wire.ModelVersion
		ResultPool       evaluation.ResultPool
		RespondingAgents int       // agents that have answered, including those with too few held-out rows
		PresentAgents    int       // agents that are present, and those that answered and then left
		TooFewAgents     bool      // too few agents have answered: the pool is empty
		EndedAt          time.Time // in UTC, to the millisecond
	}
	// DiscardRoundSpool ends all transfers of a round and removes its spool, at any later time.
	DiscardRoundSpool struct{ Round wire.RoundID }
)

func (ReportEvent) effect()          {}
func (SaveJournalRecord) effect()    {}
func (PublishAnnouncement) effect()  {}
func (SendInvitation) effect()       {}
func (RequestEdges) effect()         {}
func (RequestEdgesAhead) effect()    {}
func (SendRoundStanding) effect()    {}
func (ReceiveUpdate) effect()        {}
func (SendUpdateAcceptance) effect() {}
func (SendUpdateRefusal) effect()    {}
func (SendUpdateFate) effect()       {}
func (AggregateUpdates) effect()     {}
func (WriteHistory) effect()         {}
func (ReportEvaluation) effect()     {}
func (DiscardRoundSpool) effect()    {}
