package agent

import (
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/wire"
)

// stepSenderOf gives the sender an answer about its update. Updates of two rounds may have equal content, so the
// answer's round must be the update's.
func (a *Agent) stepSenderOf(h wire.Header, ev transfer.SendEvent) {
	if a.sender != nil && a.updateBeingSent.run == h.Run && a.updateBeingSent.round == h.Round {
		a.stepSender(ev)
	}
}

func (a *Agent) stepSender(ev transfer.SendEvent) {
	if a.sender == nil {
		return
	}
	s := a.sender
	for _, e := range s.Step(a.core.Loop.Now(), ev) {
		switch e := e.(type) {
		case transfer.SendManifest:
			u := a.updateBeingSent
			body := u.Update
			body.Inline, body.UnsolicitedChunks = s.Inline(), uint32(e.UnsolicitedChunks)
			s.SetSeal(a.core.Sealer.BlobSeal(u.Payload.Hash))
			a.publish(mqtt.Message{
				Topic: a.uploadTopic(transfer.ManifestPart), QoS: mqtt.AtMostOnce,
				Payload: a.core.Sealer.Envelope(wire.TypeUpdate, u.run, u.round,
					body.Body()),
			})
		case transfer.SendChunk:
			a.publish(mqtt.Message{Topic: a.uploadTopic(transfer.ChunkPart(e.ChunkIndex)), QoS: mqtt.AtMostOnce,
				Payload: s.Chunk(e.ChunkIndex)})
		case transfer.UploadFinished:
			a.sender = nil
		}
	}
}

func (a *Agent) uploadTopic(part string) string {
	return a.cfg.Topics.Update(a.cfg.ID, transfer.UploadID(a.updateBeingSent.Payload.Hash), part)
}
