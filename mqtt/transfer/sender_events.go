package transfer

import "github.com/fedmesh/fedmesh/wire"

// SendEvent is Start, Connected, Disconnected, Forgotten, UpdateRequested,
// CreditGranted, UpdateAccepted, UpdateRefused, Cancel or Tick.
type SendEvent interface{ isSendEvent() }

type (
	// CoordinatorRestarted says that the coordinator has restarted: the update is offered
	// again at once. The credit is void, and chunks that are still on their way
	// reach a coordinator that does not know what they belong to.
	CoordinatorRestarted struct{}
	// UpdateRequested says that the coordinator asks for the update again. While a
	// credit lasts it knows of the update, and nothing changes; else the update is
	// offered at once.
	UpdateRequested struct{}
)

func (CoordinatorRestarted) isSendEvent() {}
func (UpdateRequested) isSendEvent()      {}

// Answers of the coordinator. An answer that names another update is ignored.
type (
	// CreditGranted lends the right to send the named chunks.
	CreditGranted struct{ wire.ChunkCredit }
	// UpdateAccepted says that the update is durable.
	UpdateAccepted struct{ wire.UpdateAccepted }
	// UpdateRefused says that the update will not be taken.
	UpdateRefused struct{ wire.UpdateRefused }
)

func (CreditGranted) isSendEvent()  {}
func (UpdateAccepted) isSendEvent() {}
func (UpdateRefused) isSendEvent()  {}

// SendEffect is SendManifest, SendChunk or UploadFinished.
type SendEffect interface{ isSendEffect() }

type (
	// SendManifest asks the host to seal and publish the update's manifest,
	// with the payload inside where UpdateSender.InlinePayload returns one. So many chunks follow it without having
	// been lent.
	SendManifest struct{ UnsolicitedChunks int }
	// SendChunk asks the host to publish UpdateSender.ChunkMessage(ChunkIndex).
	SendChunk struct{ ChunkIndex int }
	// UploadFinished ends the transfer. The reason is 0 when it was accepted.
	UploadFinished struct {
		IsAccepted    bool
		RefusalReason wire.UpdateRefusalReason
	}
)

func (SendManifest) isSendEffect()   {}
func (SendChunk) isSendEffect()      {}
func (UploadFinished) isSendEffect() {}

// SenderStats counts over an UpdateSender's life.
type SenderStats struct {
	SentManifests   uint64 // manifests sent
	SentChunks      uint64 // chunks sent, repeats too
	ReceivedCredits uint64 // credits heard
	HeldBackChunks  uint64 // chunks that were lent again while the link may still have carried them
	IgnoredAnswers  uint64 // answers about another update, or a credit without a link
}
