package round

import (
	"time"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/evaluation"
	"github.com/fedmesh/fedmesh/round/stop"
	"github.com/fedmesh/fedmesh/wire"
)

// Effect is something that a machine asks its host to do.
type Effect interface{ effect() }

// Effects of both machines.
type (
	// ReportEvent passes an event to the observer.
	ReportEvent struct{ Event observe.Event }
)

// SelectedAgent is an agent that takes part in a round.
type SelectedAgent struct {
	Agent      wire.AgentID
	StepWeight float64 // of its local step size
}

// Effects of the coordinator's machine.
type (
	// SaveJournalRecord saves the record: a restart resumes from the last one. It is on disk before the next effect
	// begins.
	SaveJournalRecord struct{ Record Record }
	// Announce makes the announcement the retained one, and its blobs available before it. The host answers with
	// Announced.
	Announce struct {
		Round          wire.RoundID
		Announcement   wire.Announcement
		SelectedAgents []SelectedAgent // whom its selection is to name, in id order; none = they are invited
	}
	// Invite sends an invitation for the current announcement.
	Invite struct {
		Agent          wire.AgentID
		TimeLeft       time.Duration
		StepWeight     float64
		MustUpload     bool // it is to send its update, and not only to train and mix
		EdgeBlockRound wire.RoundID
		MixingPeers    []wire.Peer
		EndedEdges     []wire.EndedEdge
		Samples        uint64 // that it has by its hello before the draw
	}
	// RequestEdges asks for the edges between the agents of the next round, which are in
	// id order. The host answers with Meshed.
	RequestEdges struct {
		Round  wire.RoundID
		Agents []MeshAgent
	}
	// RequestEdgesAhead has the edges between agents made while a round goes on, which Mesh asks for next unless the
	// agents change once more. The host answers with EdgesAheadReady.
	RequestEdgesAhead struct{ Agents []MeshAgent }
	// SendStanding tells an agent its place in the current announcement's round.
	SendStanding struct {
		Agent    wire.AgentID
		Standing wire.RoundStanding
		Samples  uint64 // of its newest hello
	}
	// ReceiveUpdate lets the transfer of an offered update begin or go on. The host
	// answers with Stored or Rejected.
	ReceiveUpdate struct{ Offer }
	// AcceptUpdate tells an agent that its update of a round is held, or folded: it need not send it now.
	AcceptUpdate struct {
		Agent  wire.AgentID
		Round  wire.RoundID
		Update wire.Digest
	}
	// RefuseUpdate tells an agent that its update is not taken, and ends its transfer.
	// Run and Round are the update's own, which need not be the present ones.
	RefuseUpdate struct {
		Agent  wire.AgentID
		Run    wire.RunID
		Round  wire.RoundID
		Update wire.Digest
		Reason wire.UpdateRefusalReason
	}
	// SendUpdateFate tells an agent what became of its update of an earlier round.
	SendUpdateFate struct {
		Agent  wire.AgentID
		Round  wire.RoundID
		Update wire.Digest
		Fate   wire.UpdateFate
	}
	// Aggregate aggregates the set. The host answers with Folded when the new model is on disk, beside the one before.
	Aggregate struct {
		Round         wire.RoundID
		Plan          Plan
		Contributions []Contribution
		// BaseModelDiverged is true if the local steps of most participants diverged from the base model.
		BaseModelDiverged bool
	}
	// WriteHistory adds the line of a round that is over to the history, before the next Journal at the latest. The
	// journal holds the outcome already; it is asked for again after a restart, and a line that is there stays the only
	// one.
	WriteHistory struct {
		Run        wire.RunID
		Outcome    RoundOutcome
		StopReason stop.Reason // why the run is over with it; empty if it goes on
	}
	// ReportEvaluation tells, and writes to the history, what agents say of a model of the run. A restart that comes
	// before the next Journal has them say it once more; a line that is there stays the only one.
	ReportEvaluation struct {
		Run              wire.RunID
		Round            wire.RoundID // under way, or the last one
		Version          wire.ModelVersion
		Pool             evaluation.ResultPool
		RespondingAgents int       // agents, also those that hold out too few rows
		PresentAgents    int       // agents, with those that were heard and have left
		TooFewAgents     bool      // too few were heard: the pool is empty
		At               time.Time // in UTC, to the millisecond
	}
	// DiscardRound ends all transfers and removes the spool of a round, some time.
	DiscardRound struct{ Round wire.RoundID }
)

func (ReportEvent) effect()       {}
func (SaveJournalRecord) effect() {}
func (Announce) effect()          {}
func (Invite) effect()            {}
func (RequestEdges) effect()      {}
func (RequestEdgesAhead) effect() {}
func (SendStanding) effect()      {}
func (ReceiveUpdate) effect()     {}
func (AcceptUpdate) effect()      {}
func (RefuseUpdate) effect()      {}
func (SendUpdateFate) effect()    {}
func (Aggregate) effect()         {}
func (WriteHistory) effect()      {}
func (ReportEvaluation) effect()  {}
func (DiscardRound) effect()      {}

// Effects of the agent's machine.
type (
	// FollowAnnouncement has the host use the announcement that the agent obeys now: its model to predict with, and its
	// request to evaluate a model.
	FollowAnnouncement struct{ Position wire.AnnouncementPosition }
	// SavePosition saves the place of the announcement, beside what follows: no update is offered before. Nothing older
	// is obeyed after a restart. The host answers with Obeyed.
	SavePosition struct {
		Position           wire.AnnouncementPosition
		AnnouncementDigest wire.Digest
	}
	// PrepareTask fetches the task and holds the local data against it. The host
	// answers with Prepared.
	PrepareTask struct{ Task wire.BlobRef }
	// FetchModel pulls the base model. The host answers with Fetched.
	FetchModel struct{ Base wire.BlobRef }
	// Train computes the update, and saves it if it is to be sent. The host answers with Trained.
	Train struct {
		Position       wire.AnnouncementPosition
		Announcement   wire.Announcement
		StepWeight     float64
		MustUpload     bool
		EdgeBlockRound wire.RoundID // for which the edges to them were made
		MixingPeers    []wire.Peer  // to mix with at every local step
		Deadline       time.Time
		// Samples is how many rows the coordinator knows of, which refuses an update of others; 0 = not known. Rows are
		// only added.
		Samples uint64
	}
	// SubmitUpdate saves the update, if it is not saved, and then sends it until it is accepted, refused or released.
	// While it is being sent, it is offered anew: the coordinator has restarted.
	SubmitUpdate struct {
		Run               wire.RunID
		Round             wire.RoundID
		Update            wire.Digest
		FirstCreditChunks uint32 // chunks that may go with it: the first credit
	}
	// FindUpdateFate has the host find out what became of an update whose round is over, from the outcome that is
	// announced, or by asking in the next hello.
	FindUpdateFate struct {
		Position        wire.AnnouncementPosition // of the announcement
		Round           wire.RoundID
		Update          wire.Digest
		Outcome         wire.BlobRef // of the announced folded round, which need not be that one
		AggregatedRound wire.RoundID
	}
	// ReleaseRound ends all work of the round and removes its saved update.
	ReleaseRound struct {
		RefusalReason wire.UpdateRefusalReason // why the coordinator has not taken the update; 0 = it has not said so
	}
	// SendHello tells the coordinator that the agent is there.
	SendHello struct {
		Position         wire.AnnouncementPosition
		Announcement     wire.Digest
		UnfitReason      wire.DeclineReason
		Samples          uint64
		UpdateDigest     wire.Digest
		LotteryThreshold uint32 // by which it was drawn to answer; 0 = it always answers
	}
	// Disconnect lets the host disconnect for so long, as soon as nothing of its own needs the link, while
	// MayDisconnect.
	Disconnect struct{ Duration time.Duration }
	// SendJoined answers an invitation.
	SendJoined struct {
		Position     wire.AnnouncementPosition
		Announcement wire.Digest
	}
	// SendDeclined answers an invitation, or takes back an earlier answer.
	SendDeclined struct {
		Position     wire.AnnouncementPosition
		Announcement wire.Digest
		Reason       wire.DeclineReason
	}
)

func (FollowAnnouncement) effect() {}
func (SavePosition) effect()       {}
func (PrepareTask) effect()        {}
func (FetchModel) effect()         {}
func (Train) effect()              {}
func (SubmitUpdate) effect()       {}
func (FindUpdateFate) effect()     {}
func (ReleaseRound) effect()       {}
func (SendHello) effect()          {}
func (Disconnect) effect()         {}
func (SendJoined) effect()         {}
func (SendDeclined) effect()       {}
