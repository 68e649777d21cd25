package agentround

import (
	"time"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// Effect is something that the machine asks its host to do.
type Effect interface{ effect() }

// ReportEvent passes an event to the observer.
type ReportEvent struct{ Event observe.Event }

// The effects.
type (
	// FollowAnnouncement has the host use the announcement that the agent follows now: the model to predict with, and
	// the request to evaluate a model.
	FollowAnnouncement struct{ Position wire.AnnouncementPosition }
	// SaveAnnouncementPosition saves the position of the announcement, so that the agent ignores older ones after a
	// restart. It may take place beside the following effects, but the machine offers no update before. The result is
	// AnnouncementPositionSaved.
	SaveAnnouncementPosition struct {
		Position           wire.AnnouncementPosition
		AnnouncementDigest wire.Digest
	}
	// PrepareTask downloads the task and checks whether the local data fit it. The result is TaskChecked.
	PrepareTask struct{ Task wire.BlobRef }
	// FetchModel downloads the base model. The result is ModelFetched.
	FetchModel struct{ BaseModel wire.BlobRef }
	// StartTraining computes the update, and saves it if the agent must send it. The result is TrainingEnded.
	StartTraining struct {
		Position         wire.AnnouncementPosition
		Announcement     wire.Announcement
		StepWeight       float64
		MustUpload       bool
		MixingBlockRound wire.RoundID      // the round for which the edges were computed
		MixingPeers      []wire.MixingPeer // neighbours to mix with at every local step
		Deadline         time.Time
		// MaxRows is the number of rows that the coordinator knows of; 0 = unknown. The agent trains on the first
		// MaxRows rows, because the coordinator refuses an update of another number of rows.
		MaxRows uint64
	}
	// SubmitUpdate saves the update, unless it is saved, and then sends it until it is accepted, refused or released.
	// If it is being sent already, the host offers it again, because the coordinator has restarted.
	SubmitUpdate struct {
		Run                 wire.RunID
		Round               wire.RoundID
		UpdateDigest        wire.Digest
		InitialCreditChunks uint32 // number of chunks that the agent may send with the manifest
	}
	// FindUpdateFate has the host determine the outcome of an update of an ended round: from the outcome that is
	// announced, or with a question in the next hello.
	FindUpdateFate struct {
		Position       wire.AnnouncementPosition // position of the announcement
		Round          wire.RoundID
		UpdateDigest   wire.Digest
		RoundOutcome   wire.BlobRef // the announced outcome, which may be that of another round
		LastEndedRound wire.RoundID
	}
	// EndRoundWork ends all work of the round and removes its saved update.
	EndRoundWork struct {
		RefusalReason wire.UpdateRefusalReason // why the coordinator has refused the update; 0 = it has not
	}
	// SendHello sends a hello message, which reports the agent to the coordinator.
	SendHello struct {
		Position           wire.AnnouncementPosition
		AnnouncementDigest wire.Digest
		UnfitReason        wire.DeclineReason
		RowCount           uint64
		UpdateDigest       wire.Digest
		LotteryThreshold   uint32 // with which the agent was drawn to answer; 0 = all agents answer
	}
	// AllowDisconnect lets the host disconnect for some time, as soon as no part of the agent needs the connection and
	// while Machine.MayDisconnect.
	AllowDisconnect struct{ Duration time.Duration }
	// SendJoined accepts an invitation.
	SendJoined struct {
		Position           wire.AnnouncementPosition
		AnnouncementDigest wire.Digest
	}
	// SendDeclined declines an invitation, or withdraws from a round after SendJoined.
	SendDeclined struct {
		Position           wire.AnnouncementPosition
		AnnouncementDigest wire.Digest
		Reason             wire.DeclineReason
	}
)

func (ReportEvent) effect()              {}
func (FollowAnnouncement) effect()       {}
func (SaveAnnouncementPosition) effect() {}
func (PrepareTask) effect()              {}
func (FetchModel) effect()               {}
func (StartTraining) effect()            {}
func (SubmitUpdate) effect()             {}
func (FindUpdateFate) effect()           {}
func (EndRoundWork) effect()             {}
func (SendHello) effect()                {}
func (AllowDisconnect) effect()          {}
func (SendJoined) effect()               {}
func (SendDeclined) effect()             {}
