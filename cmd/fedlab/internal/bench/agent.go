package bench

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/wire"
)

// device is what package agent does of a round's transport.
type device struct {
	id          wire.AgentID
	topics      mqtt.Topics
	conn        *mqtt.Session
	voice       *voice
	coordinator ed25519.PublicKey
	rng         *rand.Rand
	current     func() *play
	submit      chan *play

	puller *transfer.Puller
	hash   string // of the blob, in topics
	pulled wire.RoundID
	sender *transfer.Sender
	play   *play
}

func (d *device) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	events := d.conn.Events()
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-events:
			if !ok {
				return
			}
			if e, ok := e.(mqtt.Received); ok {
				if p := d.current(); p != nil {
					p.check(d.take(p, e.Message))
				}
			}
		case d.play = <-d.submit:
			d.sender = transfer.NewSender(d.play.update, d.play.payload, 0, mqtt.DefaultRate, d.rng)
			d.step(transfer.Start{})
		case <-timer.C:
			d.pull(d.current(), transfer.Tick{})
			d.step(transfer.Tick{})
		}
		timer.Reset(time.Until(d.deadline()))
	}
}

func (d *device) deadline() time.Time {
	at := time.Now().Add(time.Hour)
	if d.puller != nil {
		if t, ok := d.puller.Deadline(); ok && t.Before(at) {
			at = t
		}
	}
	if d.sender != nil {
		if t, ok := d.sender.Deadline(); ok && t.Before(at) {
			at = t
		}
	}
	return at
}

// take does with one message what an agent does.
func (d *device) take(p *play, m mqtt.Message) error {
	kind, _, id, part, err := d.topics.Parse(m.Topic)
	switch {
	case err != nil:
		return err
	case kind == mqtt.KindBlob:
		if id == d.hash {
			d.pull(p, transfer.Part{Name: part, Payload: m.Payload})
		}
		return nil
	}
	e, err := open(p.signed, m.Payload, d.coordinator)
	if err != nil || e.Round != p.number {
		return err
	}
	switch e.Type {
	case wire.TypeAnnouncement:
		return d.fetch(p, e)
	case wire.TypeCredit:
		c, err := wire.DecodeCredit(e.Body)
		d.step(transfer.CreditGranted{Credit: c})
		return err
	case wire.TypeAccepted:
		a, err := wire.DecodeAccepted(e.Body)
		d.step(transfer.AcceptedBy{Accepted: a})
		return err
	}
	return fmt.Errorf("agent got a %s", e.Type)
}

// fetch begins to pull the model that is announced, once.
func (d *device) fetch(p *play, e wire.Envelope) error {
	a, err := wire.DecodeAnnouncement(e.Body)
	if err != nil || d.pulled == p.number {
		return err
	}
	d.pulled = p.number
	d.hash = a.Base.Hash.Topic()
	d.puller = transfer.NewPuller(transfer.DefaultPullerConfig().For(mqtt.DefaultRate), a.Base, d.rng)
	d.pull(p, transfer.Start{})
	return nil
}

func (d *device) pull(p *play, ev transfer.PullEvent) {
	if d.puller == nil {
		return
	}
	for _, e := range d.puller.Step(time.Now(), ev) {
		switch e := e.(type) {
		case transfer.Subscribe:
			d.conn.Subscribe(mqtt.AtMostOnce, d.blobTopics(e.Parts)...)
		case transfer.Unsubscribe:
			d.conn.Unsubscribe(d.blobTopics(e.Parts)...)
		case transfer.Open:
			d.pull(p, transfer.Opened{Blob: e.Manifest.Hash, Data: transfer.NewMemory(int(e.Manifest.Length))})
		case transfer.Done:
			d.puller = nil
			p.out.done()
		case transfer.Failed:
			p.check(e.Err)
		}
	}
}

func (d *device) blobTopics(parts []string) []string {
	topics := make([]string, len(parts))
	for i, part := range parts {
		topics[i] = d.topics.Blob(d.hash, part)
	}
	return topics
}

func (d *device) step(ev transfer.SendEvent) {
	if d.sender == nil {
		return
	}
	p, s := d.play, d.sender
	for _, e := range s.Step(time.Now(), ev) {
		switch e := e.(type) {
		case transfer.SendManifest:
			u := wire.Update{Kind: wire.KindTraining, Base: p.update.Hash, Payload: p.update, Inline: s.Inline(),
				LocalSteps: 1, Samples: 1}
			d.publish(transfer.ManifestPart, mqtt.AtMostOnce,
				d.voice.seal(p.signed, wire.TypeUpdate, p.number, u.Body()))
		case transfer.SendChunk:
			d.publish(transfer.ChunkPart(e.K), mqtt.AtMostOnce, s.Chunk(e.K))
		case transfer.Finished:
			d.sender = nil
			if !e.Accepted {
				p.check(errors.New("an update was not accepted"))
			}
			p.back.done()
		}
	}
}

func (d *device) publish(part string, qos mqtt.QoS, payload []byte) {
	topic := d.topics.Update(d.id, transfer.ID(d.play.update.Hash), part)
	d.play.check(d.conn.Publish(mqtt.Message{Topic: topic, Payload: payload, QoS: qos}))
}
