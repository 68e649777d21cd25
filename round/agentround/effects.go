package agentround

import (
	"time"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// Effect is an action that the machine returns from Step and that its host must perform.
type Effect interface{ effect() }

// ReportEvent passes an event to the observer.
type ReportEvent struct{ Event observe.Event }

// Effects of the agent's machine.
type (
	// FollowAnnouncement passes the position of the current announcement to the host. The host then loads the announced
	// model for predictions and evaluates a model if the announcement requests it.
	FollowAnnouncement struct{ Position wire.AnnouncementPosition }
	// SaveAnnouncementPosition saves the position of the announcement, so that the agent ignores older announcements
	// after a restart. The host may perform later effects concurrently and responds with the event
	// AnnouncementPositionSaved.
	SaveAnnouncementPosition struct {
		Position           wire.AnnouncementPosition
		AnnouncementDigest wire.Digest
	}
	// PrepareTask downloads the task and checks whether the local data fit it. The host responds with the event
	// TaskChecked.
	PrepareTask struct{ Task wire.BlobRef }
	// FetchModel downloads the base model of the round. The host responds with the event ModelFetched.
	FetchModel struct{ BaseModel wire.BlobRef }
	// StartTraining computes the update by local training, and saves the update if the agent must send it. The
	// resulting event is TrainingEnded.
	StartTraining struct {
		Position         wire.AnnouncementPosition
		Announcement     wire.Announcement
		StepWeight       float64
		MustUpload       bool
		MixingBlockRound wire.RoundID // round for which the mixing edges were computed
		// neighbours with which the agent mixes (averages) its parameters at every local step
		MixingPeers []wire.MixingPeer
		Deadline    time.Time
		// MaxRows is the maximum number of rows to train on: the number of rows in the agent's last acknowledged hello
		// message, or 0 (no limit) if that number is unknown. The coordinator refuses an update computed from another
		// number of rows.
		MaxRows uint64
	}
	// SubmitUpdate saves the update if necessary, and sends it until the coordinator accepts or refuses the update or
	// the round ends. If the host already sends the update, it offers the update again to the restarted coordinator.
	SubmitUpdate struct {
		Run                 wire.RunID
		Round               wire.RoundID
		UpdateDigest        wire.Digest
		InitialCreditChunks uint32 // number of chunks that the agent may send together with the manifest
	}
	// FindUpdateFate finds out whether an update was aggregated in a round that has ended. The host reads the announced
	// outcome of the round, or asks the coordinator in the next hello.
	FindUpdateFate struct {
		Position       wire.AnnouncementPosition // position of the announcement that contains the outcome
		Round          wire.RoundID
		UpdateDigest   wire.Digest
		RoundOutcome   wire.BlobRef // announced outcome of the round LastEndedRound
		LastEndedRound wire.RoundID
	}
	// EndRoundWork ends all of the agent's work in the round and deletes the saved update.
	EndRoundWork struct {
		// reason why the coordinator refused the update; 0 if the update was not refused
		RefusalReason wire.UpdateRefusalReason
	}
	// SendHello sends a hello message, which describes the agent to the coordinator.
	SendHello struct {
		Position           wire.AnnouncementPosition
		AnnouncementDigest wire.Digest
		UnfitReason        wire.DeclineReason
		RowCount           uint64
		UpdateDigest       wire.Digest
		// threshold of the lottery by which this agent was selected to send a hello message; 0 means that all agents
		// send a hello message
		LotteryThreshold uint32
	}
	// AllowDisconnect permits the host to disconnect from the broker for the given duration. The host may disconnect
	// only while Machine.MayDisconnect returns true and no other part of the agent needs the connection.
	AllowDisconnect struct{ Duration time.Duration }
	// SendJoined accepts an invitation.
	SendJoined struct {
		Position           wire.AnnouncementPosition
		AnnouncementDigest wire.Digest
	}
	// SendDeclined declines an invitation. The machine may also emit it after SendJoined, if the agent must leave the
	// round.
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
