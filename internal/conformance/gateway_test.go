package conformance

import (
	"crypto/ed25519"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit/hosts"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/wire"
)

// gateway sends the updates of many agents over one session.
type gateway struct {
	session  *mqtt.Session
	topics   mqtt.Topics
	key      ed25519.PrivateKey
	uploads  map[wire.AgentID]*upload
	open     int // number of uploads that have not finished
	sequence uint64
	failure  error
}

// upload is the state of the upload of one agent's update.
type upload struct {
	*transfer.UpdateSender
	update   wire.Update
	accepted bool
}

// updateOf returns the update of agent number i. Most updates fit into their manifest message. Every tenth update needs
// one additional chunk, and another tenth of the updates needs two chunks.
func updateOf(i int) []byte {
	size := 400
	switch i % 10 {
	case 3:
		size = 10_000
	case 7:
		size = 70_000
	}
	return blobOf(uint64(i), size+i)
}

// newGateway returns a gateway for the agents with numbers in [from, to).
func newGateway(t *testing.T, s *mqtt.Session, key ed25519.PrivateKey, from, to int) *gateway {
	t.Helper()
	g := &gateway{session: s, topics: hosts.TopicsOf(t, federation), key: key,
		uploads: map[wire.AgentID]*upload{}, open: to - from}
	for i := from; i < to; i++ {
		payload := updateOf(i)
		m, err := wire.NewManifest(payload, wire.Digest{1})
		if err != nil {
			t.Fatal(err)
		}
		id := agentID(i)
		g.uploads[id] = &upload{
			UpdateSender: transfer.NewUpdateSender(m, payload, 0, 0, 0, rand.New(rand.NewPCG(uint64(i), 5))),
			update:       wire.Update{Kind: wire.KindTraining, PayloadManifest: m, LocalSteps: 1, Samples: 1},
		}
		s.Subscribe(mqtt.AtMostOnce, g.topics.CoordinatorToAgent(id))
	}
	return g
}

// run sends updates until all uploads have finished or the session has ended.
func (g *gateway) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	g.stepAll(transfer.Start{})
	for g.open > 0 && g.failure == nil {
		select {
		case e, ok := <-g.session.Events():
			if !ok {
				g.failure = mqtt.ErrClosed
			}
			g.hear(e)
		case <-timer.C:
			g.stepAll(transfer.Tick{})
		}
		timer.Reset(time.Until(g.deadline()))
	}
}

func (g *gateway) deadline() time.Time {
	first := time.Now().Add(time.Hour)
	for _, u := range g.uploads {
		if at, ok := u.Deadline(); ok && at.Before(first) {
			first = at
		}
	}
	return first
}

func (g *gateway) hear(e mqtt.Event) {
	switch e := e.(type) {
	case mqtt.LinkUp:
		g.stepAll(transfer.LinkUp{})
	case mqtt.LinkDown:
		g.stepAll(transfer.LinkDown{})
	case mqtt.MessageReceived:
		_, id, _, _, err := g.topics.ParseTopic(e.Topic)
		if err == nil {
			err = g.answer(id, e.Payload)
		}
		if err != nil {
			g.failure = err
		}
	}
}

// answer handles a message that the coordinator sent to agent id.
func (g *gateway) answer(id wire.AgentID, payload []byte) error {
	e, err := wire.ParseEnvelope(payload)
	if err != nil {
		return err
	}
	switch e.Type {
	case wire.TypeChunkCredit:
		m, err := wire.DecodeChunkCredit(e.Body)
		g.step(id, transfer.CreditGranted{ChunkCredit: m})
		return err
	case wire.TypeUpdateAccepted:
		m, err := wire.DecodeUpdateAccepted(e.Body)
		g.step(id, transfer.UpdateAccepted{UpdateAccepted: m})
		return err
	case wire.TypeUpdateRefused:
		m, err := wire.DecodeUpdateRefused(e.Body)
		g.step(id, transfer.UpdateRefused{UpdateRefused: m})
		return err
	}
	return fmt.Errorf("an answer of type %s", e.Type)
}

func (g *gateway) stepAll(ev transfer.SendEvent) {
	for id := range g.uploads {
		g.step(id, ev)
	}
}

func (g *gateway) step(id wire.AgentID, ev transfer.SendEvent) {
	u := g.uploads[id]
	topic := func(part string) string {
		return g.topics.UpdatePart(id, transfer.UploadID(u.update.PayloadManifest.Hash), part)
	}
	for _, e := range u.Step(time.Now(), ev) {
		switch e := e.(type) {
		case transfer.SendManifest:
			g.sequence++
			m := u.update
			m.InlinePayload = u.InlinePayload()
			h := wire.Header{Root: wire.FirstRootVersion,
				Type: wire.TypeUpdate, Federation: federation, Sender: id, Epoch: 1, Run: 1, Round: 1,
				Sequence: g.sequence}
			g.send(mqtt.Message{Topic: topic(transfer.ManifestPartName), QoS: mqtt.AtLeastOnce,
				Payload: wire.SignEnvelope(nil, h, m.Body(), g.key)})
		case transfer.SendChunk:
			g.send(mqtt.Message{Topic: topic(transfer.ChunkPartName(e.ChunkIndex)),
				Payload: u.ChunkMessage(e.ChunkIndex)})
		case transfer.UploadFinished:
			g.open--
			u.accepted = e.IsAccepted
		}
	}
}

// send publishes a message once and ignores errors, because the UpdateSender requests the transmission of lost messages
// again.
func (g *gateway) send(m mqtt.Message) { _ = g.session.Publish(m) }
