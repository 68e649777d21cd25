package round

import (
	"time"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/evaluation"
	"github.com/fedmesh/fedmesh/round/stop"
	"github.com/fedmesh/fedmesh/wire"
)

// Effect is an action that a machine returns from Step and that its host must perform.
type Effect interface{ effect() }

// Effects that the machines of the coordinator and of the agent share.
type (
	// ReportEvent passes an event to the observer, which updates metrics, logs and status.
	ReportEvent struct{ Event observe.Event }
)

// SelectedAgent is an agent that was drawn to participate in a round.
type SelectedAgent struct {
	Agent      wire.AgentID
	StepWeight float64 // factor by which the agent multiplies its local step size
}

// Effects of the coordinator's machine.
type (
	// SaveJournalRecord saves the record from which a restarted process resumes. The host performs the next effect only
	// after the record is on disk.
	SaveJournalRecord struct{ Record JournalRecord }
	// PublishAnnouncement publishes a retained announcement, after the task and the model to which the announcement
	// refers. The host responds with the event AnnouncementSent.
	PublishAnnouncement struct {
		Round        wire.RoundID
		Announcement wire.Announcement
		// SelectedAgents lists the drawn agents in id order. It is empty if the drawn agents receive individual
		// invitations.
		SelectedAgents []SelectedAgent
	}
	// SendInvitation sends an agent an invitation to the round that is currently announced.
	SendInvitation struct {
		Agent            wire.AgentID
		TimeLeft         time.Duration
		StepWeight       float64
		MustUpload       bool // whether the agent must send its update; if false, the agent only trains and mixes
		MixingBlockRound wire.RoundID
		MixingPeers      []wire.MixingPeer
		EndedEdges       []wire.EndedEdge
		// number of rows in the agent's last hello message before the draw, which the agent's update must match
		KnownRowCount uint64
	}
	// RequestEdges asks the host to compute the mixing edges between the agents of the next round. Agents are sorted by
	// id. The host responds with the event EdgesReady.
	RequestEdges struct {
		Round  wire.RoundID
		Agents []MixingAgent
	}
	// RequestEdgesAhead asks the host to compute the mixing edges of the next round while the current round is still
	// open, so that a later RequestEdges for the same agents is fast. The host responds with the event EdgesAheadReady.
	RequestEdgesAhead struct{ Agents []MixingAgent }
	// SendRoundStanding answers an agent's hello message. The answer informs the agent whether it was drawn for the
	// current round.
	SendRoundStanding struct {
		Agent         wire.AgentID
		Standing      wire.SelectionStatus
		KnownRowCount uint64 // number of rows in the agent's newest hello message
	}
	// ReceiveUpdate begins or continues the transfer of an update that an agent has offered. The host responds with the
	// event UpdateStored or UpdateRejected.
	ReceiveUpdate struct{ UpdateOffer }
	// SendUpdateAcceptance informs an agent that the coordinator has stored or aggregated the agent's update, so that
	// the agent stops sending it.
	SendUpdateAcceptance struct {
		Agent        wire.AgentID
		Round        wire.RoundID
		UpdateDigest wire.Digest
	}
	// SendUpdateRefusal informs an agent that the coordinator refuses the agent's update, and ends the transfer. Run
	// and Round identify the update, which may belong to an earlier round.
	SendUpdateRefusal struct {
		Agent        wire.AgentID
		Run          wire.RunID
		Round        wire.RoundID
		UpdateDigest wire.Digest
		Reason       wire.UpdateRefusalReason
	}
	// SendUpdateFate informs an agent whether its update in an earlier round was aggregated.
	SendUpdateFate struct {
		Agent        wire.AgentID
		Round        wire.RoundID
		UpdateDigest wire.Digest
		Fate         wire.UpdateFate
	}
	// AggregateUpdates computes the next model from the accepted updates and saves it without replacing the current
	// model. The host responds with the event AggregationEnded.
	AggregateUpdates struct {
		Round         wire.RoundID
		Plan          Plan
		Contributions []Contribution
		// MostParticipantsDiverged reports whether the local training of more than half of the participants diverged.
		MostParticipantsDiverged bool
	}
	// WriteHistory appends an ended round to the history before the next journal record is saved. After a crash the
	// machine may emit the effect again; the host then ignores the repetition.
	WriteHistory struct {
		Run        wire.RunID
		Outcome    RoundOutcome
		StopReason stop.Reason // reason why the run ends with this round; empty if it continues
	}
	// ReportEvaluation reports the agents' evaluation of a model and writes it to the history. After a crash the
	// machine may emit the effect again; the host then ignores the repetition.
	ReportEvaluation struct {
		Run        wire.RunID
		Round      wire.RoundID // current round, or the last round if none is open
		Version    wire.ModelVersion
		ResultPool evaluation.ResultPool
		// number of agents that sent an evaluation result, including agents with too few held-out rows
		RespondingAgents int
		// number of agents that were present during the evaluation, including agents that left after they had responded
		PresentAgents int
		TooFewAgents  bool      // whether too few agents responded; ResultPool is then empty
		EndedAt       time.Time // end of the evaluation in UTC, to the millisecond
	}
	// DiscardRoundSpool ends all update transfers of a round and deletes the round's stored updates. The host may
	// delete them later.
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
