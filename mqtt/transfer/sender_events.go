package transfer

import "github.com/fedmesh/fedmesh/wire"

// SendEvent is the type of events that an UpdateSender processes: Start, LinkUp, LinkDown, CoordinatorRestarted,
// UpdateRequested, CreditGranted, UpdateAccepted, UpdateRefused, Cancel and Tick.
type SendEvent interface{ isSendEvent() }

type (
	// CoordinatorRestarted reports that the coordinator has restarted. The update is offered again immediately. The
	// current credit is void, because the new process cannot assign chunks in transit to an update.
	CoordinatorRestarted struct{}
	// UpdateRequested reports that the coordinator requests the update again. It has no effect while the sender has a
	// valid credit, because the coordinator then knows the update. Otherwise the update is offered immediately.
	UpdateRequested struct{}
)

func (CoordinatorRestarted) isSendEvent() {}
func (UpdateRequested) isSendEvent()      {}

// Answers of the coordinator. An answer about another update is ignored.
type (
	// CreditGranted permits the sender to send the given chunks.
	CreditGranted struct{ wire.ChunkCredit }
	// UpdateAccepted reports that the coordinator has stored the update durably.
	UpdateAccepted struct{ wire.UpdateAccepted }
	// UpdateRefused reports that the coordinator has refused the update.
	UpdateRefused struct{ wire.UpdateRefused }
)

func (CreditGranted) isSendEvent()  {}
func (UpdateAccepted) isSendEvent() {}
func (UpdateRefused) isSendEvent()  {}

// SendEffect is an action that the host of an UpdateSender must perform: SendManifest, SendChunk or UploadFinished.
type SendEffect interface{ isSendEffect() }

type (
	// SendManifest makes the host sign and publish the manifest of the update, with the payload inside if
	// UpdateSender.InlinePayload is not nil. UnsolicitedChunks is the number of chunks that follow without a credit.
	SendManifest struct{ UnsolicitedChunks int }
	// SendChunk makes the host publish UpdateSender.ChunkMessage(ChunkIndex).
	SendChunk struct{ ChunkIndex int }
	// UploadFinished ends the transfer. RefusalReason is 0 if the update was accepted.
	UploadFinished struct {
		IsAccepted    bool
		RefusalReason wire.UpdateRefusalReason
	}
)

func (SendManifest) isSendEffect()   {}
func (SendChunk) isSendEffect()      {}
func (UploadFinished) isSendEffect() {}

// SenderStats holds the counters of an UpdateSender.
type SenderStats struct {
	SentManifests   uint64
	SentChunks      uint64 // sent chunks, including repeats
	ReceivedCredits uint64
	HeldBackChunks  uint64 // credited chunks that were not sent again because they may still have been in flight
	IgnoredAnswers  uint64 // answers about another update, and credits received without a link
}
