// Package upload encodes, stores and sends the updates of an agent and determines whether the coordinator has used
// them. The part of an update that the codec does not send is added to the next update.
package upload

import (
	"time"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/codec"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// UpdateUploader is the part of an agent that sends its updates.
type UpdateUploader struct {
	core          *part.AgentCore
	minUplinkRate transfer.LinkRate
	onUpdateFate  func(run wire.RunID, r wire.RoundID, f wire.UpdateFate)

	current          *part.LocalUpdate           // update of the current round; nil if none
	mayHaveBeenSent  bool                        // true if the coordinator may have received the update
	updateBeingSaved *part.LocalUpdate           // update that is sent after it has been saved; nil if none
	sender           *transfer.UpdateSender      // state machine that sends the update; nil if none is sent
	updateBeingSent  *part.LocalUpdate           // update that the state machine sender is sending
	edgeMeasurements wire.MixingEdgeMeasurements // measurements of the mixing edges in the newest block
	// update whose outcome is requested in the next hello message; zero if there is none
	fateRequest           wire.UpdateFateRequest
	newestRequestSequence uint64 // sequence number of the newest request for an update

	store    updateStore
	feedback errorFeedback
}

// New returns an UpdateUploader with the update and the residual that an earlier process has saved. The parameter rate
// is the minimum uplink rate in bytes per second. The function settled receives the outcome of each update.
func New(core *part.AgentCore, rate transfer.LinkRate,
	settled func(run wire.RunID, r wire.RoundID, f wire.UpdateFate)) (p *UpdateUploader, err error) {
	p = &UpdateUploader{core: core, minUplinkRate: rate, onUpdateFate: settled,
		store: updateStore{slots: core.StateFolder.OpenSlots(state.Update)}}
	if p.feedback.residual, err = loadResidual(core.StateFolder); err != nil {
		return nil, err
	}
	if r := &p.feedback.residual; !r.pendingUpdateHash.IsZero() {
		p.fateRequest = wire.UpdateFateRequest{Round: r.round, Update: r.pendingUpdateHash}
	}
	if p.current, err = loadUpdate(p.store.slots); err != nil {
		core.Logger.Warn("cannot read the saved update; ignoring the update", "err", err)
	}
	p.mayHaveBeenSent = p.current != nil
	return p, nil
}

// SavedUpdate describes the update that an earlier process has saved. It returns nil if there is none.
func (p *UpdateUploader) SavedUpdate() *agentround.SavedUpdate {
	u := p.current
	if u == nil {
		return nil
	}
	return &agentround.SavedUpdate{Epoch: u.Epoch, Run: u.Run, Round: u.Round, BaseModelDigest: u.BaseModelDigest,
		UpdateDigest: u.PayloadManifest.Hash}
}

// NextUpdateSequence returns the sequence number of an update that is about to be computed.
func (p *UpdateUploader) NextUpdateSequence() uint64 {
	p.AbandonUpdateRemoval()
	p.newestRequestSequence++
	return p.newestRequestSequence
}

// PackUpdate adds the residual of earlier updates to the change of the model, encodes the sum with the task's codec and
// stores the result in u. It is safe for concurrent use.
func (p *UpdateUploader) PackUpdate(u *part.LocalUpdate, e *agentround.StartTraining, t *task.CompiledTask[float32],
	change []float32) error {
	name := t.Task.Training.UpdateCodec
	rng := task.AgentRand(task.CodecSeed(e.Announcement.Seed), u.Round, task.AgentRandomKey(p.core.ID))
	packed := codec.ForName[float32](name).Append(nil, p.feedback.addResidualToChange(u, t, change), rng)
	err := u.SetPayload(packed, e.Announcement.UpdateSchema)
	u.PayloadManifest.Codec = name
	return err
}

// SaveUpdate saves an update to disk and retries until it succeeds, or until over returns true; over is called on the
// event loop. The update is sent even if saving fails. SaveUpdate is safe for concurrent use.
func (p *UpdateUploader) SaveUpdate(u *part.LocalUpdate, over func() bool) {
	write := func() error { return p.store.saveIfNewest(u) }
	err := write()
	u.SaveAttempted = true
	p.core.Loop.RunOnLoop(func() {
		if !over() {
			p.core.WriteRetrier.FinishWrite(state.RetriedWrite{Purpose: updateWrite, WriteFile: write}, err)
		}
	})
}

// SetCurrentUpdate sets the update that SubmitUpdate will send.
func (p *UpdateUploader) SetCurrentUpdate(u *part.LocalUpdate) {
	if u.ResidualLost {
		p.core.Observer.Observe(ResidualChanged{Round: u.Round, ResidualLost: true})
	}
	p.current, p.mayHaveBeenSent, p.edgeMeasurements = u, false, u.EdgeMeasurements
}

// SubmitUpdate starts sending the current update, or sends it again from the start. It first saves an update that is
// not on disk yet.
func (p *UpdateUploader) SubmitUpdate(e agentround.SubmitUpdate) {
	u := p.current
	if u == nil || u.PayloadManifest.Hash != e.UpdateDigest || p.updateBeingSaved == u {
		return // The update was released, or it is sent after it has been saved.
	}
	if u.SaveAttempted || u.IsCheapToRecompute {
		p.sendCurrentUpdate(int(e.InitialCreditChunks))
		return
	}
	p.updateBeingSaved = u
	p.core.RunJobThenOnLoop(p.core.DataJobs, func() func() {
		p.SaveUpdate(u, func() bool { return p.current != u })
		return func() {
			if p.updateBeingSaved == u {
				p.updateBeingSaved = nil
			}
			if p.current == u {
				p.sendCurrentUpdate(int(e.InitialCreditChunks))
			}
		}
	})
}

// sendCurrentUpdate starts sending the current update. The number unsolicited is the number of first chunks that are
// sent without waiting for the coordinator's permission.
func (p *UpdateUploader) sendCurrentUpdate(unsolicited int) {
	if p.sender != nil && p.updateBeingSent == p.current {
		p.stepSender(transfer.CoordinatorRestarted{})
		return
	}
	p.updateBeingSent, p.mayHaveBeenSent = p.current, true
	p.sender = transfer.NewUpdateSender(p.updateBeingSent.PayloadManifest, p.updateBeingSent.PayloadBytes, 0,
		unsolicited,
		p.minUplinkRate, p.core.Rand)
	if !p.core.IsConnected {
		p.stepSender(transfer.LinkDown{})
	}
	p.stepSender(transfer.Start{})
}

// ReleaseUpdate stops sending the update of a round that has ended, and removes the update's file. The parameter
// refused is the coordinator's reason for refusing the update, or 0. The function removeModel removes the file of the
// round's model in the same write.
func (p *UpdateUploader) ReleaseUpdate(refused wire.UpdateRefusalReason, removeModel func() error) {
	if u := p.current; u != nil {
		p.keepReleasedResidual(u, refused)
	}
	p.stepSender(transfer.Cancel{})
	p.sender, p.updateBeingSent, p.current = nil, nil, nil
	p.core.WriteRetrier.AbandonWrite(updateWrite)
	next := p.newestRequestSequence + 1
	remove := func() {
		// Ignore the error: the next start removes the file.
		_ = p.core.WriteRetrier.RunWrite(state.RetriedWrite{Purpose: updateRemoval,
			WriteFile: func() error { return p.store.removeUpdate(next, removeModel) }})
	}
	if !p.core.WriteRetrier.IsWriteFailing(residualWrite) {
		remove()
		return
	}
	// The update's file contains the current residual, so keep the file until the residual itself has been saved.
	p.store.discardEarlier(next)
	p.feedback.onResidualSaved = func() {
		if p.newestRequestSequence < next { // The condition is false if the file contains a newer update.
			remove()
		}
	}
}

// AbandonUpdateRemoval cancels the removal of an earlier round's files, because a new round is about to write them.
func (p *UpdateUploader) AbandonUpdateRemoval() { p.core.WriteRetrier.AbandonWrite(updateRemoval) }

// FillHello implements part.HelloFiller.
func (p *UpdateUploader) FillHello(h *wire.Hello) {
	h.FateRequest, h.EdgeMeasurements = p.fateRequest, p.edgeMeasurements
}

// NeedsLink implements part.LinkNeedReporter. It returns true while an update is being sent or its round is open.
func (p *UpdateUploader) NeedsLink() bool { return p.sender != nil || p.current != nil }

// ContinueSending resumes sending after the connection was restored. It is called after the round state machine has
// processed agentround.LinkUp.
func (p *UpdateUploader) ContinueSending() { p.stepSender(transfer.LinkUp{}) }

// InterruptSending pauses sending after the connection was lost. It is called after the round state machine has
// processed agentround.LinkDown.
func (p *UpdateUploader) InterruptSending() { p.stepSender(transfer.LinkDown{}) }

// Deadline implements part.TickHook.
func (p *UpdateUploader) Deadline() (at time.Time, ok bool) {
	if p.sender == nil {
		return time.Time{}, false
	}
	return p.sender.Deadline()
}

// Tick implements part.TickHook.
func (p *UpdateUploader) Tick(time.Time) { p.stepSender(transfer.Tick{}) }

// DirectMessageTypes implements part.DirectMessageReceiver.
func (p *UpdateUploader) DirectMessageTypes() []wire.MessageType {
	return []wire.MessageType{wire.TypeUpdateAccepted, wire.TypeUpdateRefused, wire.TypeChunkCredit,
		wire.TypeUpdateFateAnswer}
}

// ReceiveDirectMessage implements part.DirectMessageReceiver.
func (p *UpdateUploader) ReceiveDirectMessage(e *wire.Envelope) error {
	switch e.Type {
	case wire.TypeUpdateAccepted:
		m, err := wire.DecodeUpdateAccepted(e.Body)
		if err != nil {
			return err
		}
		p.passAnswerToSender(e.Header, transfer.UpdateAccepted{UpdateAccepted: m})
		p.core.HandleRoundEvent(agentround.UpdateAcceptanceReceived{Run: e.Run, Round: e.Round, UpdateDigest: m.Update})
	case wire.TypeUpdateRefused:
		m, err := wire.DecodeUpdateRefused(e.Body)
		if err != nil {
			return err
		}
		p.passAnswerToSender(e.Header, transfer.UpdateRefused{UpdateRefused: m})
		p.core.HandleRoundEvent(agentround.UpdateRefusalReceived{Run: e.Run, Round: e.Round, UpdateDigest: m.Update,
			Reason: m.Reason})
	case wire.TypeChunkCredit:
		m, err := wire.DecodeChunkCredit(e.Body)
		if err != nil {
			return err
		}
		p.passAnswerToSender(e.Header, transfer.CreditGranted{ChunkCredit: m})
	case wire.TypeUpdateFateAnswer:
		m, err := wire.DecodeUpdateFateAnswer(e.Body)
		if err != nil {
			return err
		}
		p.receiveFateAnswer(e.Header, m)
	}
	return nil
}

// PassInvitationToSender passes a round's invitation to the sender of that round's update, as a request for the update.
func (p *UpdateUploader) PassInvitationToSender(h wire.Header) {
	p.passAnswerToSender(h, transfer.UpdateRequested{})
}

// passAnswerToSender passes an answer to the sender if the answer concerns the update being sent. It compares rounds,
// because updates of two rounds may have equal content.
func (p *UpdateUploader) passAnswerToSender(h wire.Header, ev transfer.SendEvent) {
	if p.sender != nil && p.updateBeingSent.Run == h.Run && p.updateBeingSent.Round == h.Round {
		p.stepSender(ev)
	}
}

// stepSender passes an event to the sender's state machine and publishes the resulting messages.
func (p *UpdateUploader) stepSender(ev transfer.SendEvent) {
	s, u := p.sender, p.updateBeingSent
	if s == nil {
		return
	}
	publish := func(part string, payload []byte) {
		p.core.Publish(mqtt.Message{QoS: mqtt.AtMostOnce, Payload: payload,
			Topic: p.core.Topics.UpdatePart(p.core.ID, transfer.UploadID(u.PayloadManifest.Hash), part)})
	}
	for _, e := range s.Step(p.core.Loop.Now(), ev) {
		switch e := e.(type) {
		case transfer.SendManifest:
			body := u.Update
			body.InlinePayload, body.UnsolicitedChunks = s.InlinePayload(), uint32(e.UnsolicitedChunks)
			s.SetSealer(p.core.Sealer.NewBlobSealer(u.PayloadManifest.Hash))
			publish(transfer.ManifestPartName, p.core.Sealer.EnvelopeToCoordinator(wire.TypeUpdate, u.Run, u.Round,
				body.Body()))
		case transfer.SendChunk:
			publish(transfer.ChunkPartName(e.ChunkIndex), s.ChunkMessage(e.ChunkIndex))
		case transfer.UploadFinished:
			p.sender = nil
		}
	}
}

// Metrics lists the metrics that the events of this package update.
var Metrics = []*observe.Metric{settledUpdates, unsentResidualNorm, lostResiduals}
