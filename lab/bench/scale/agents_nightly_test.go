//go:build nightly

package scale

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/wire"
)

// thin simulates an agent without data, disk and model. It answers an announcement with a hello message if the
// announcement selects it to respond. When it becomes a participant and has received the model, it sends a prepared
// update.
type thin struct {
	of        *crowd
	id        wire.AgentID
	key       ed25519.PrivateKey
	signer    host.Signer
	selection wire.SelectionKey
	conn      *mqtt.Session
	rng       *rand.Rand

	seals   wire.X25519PublicKey
	to      *host.SealRecipient // seals (encrypts) messages to the coordinator
	down    wire.SealKey        // key for messages from the coordinator
	digest  wire.Digest         // hash of the newest announcement
	order   wire.AnnouncementPosition
	ann     wire.Announcement
	hello   time.Time // time of the next hello; zero if none is scheduled
	missing map[string]bool
	sender  *transfer.UpdateSender
	served  wire.RoundID // round in which the coordinator accepted the agent's update
}

// crowd is the set of simulated agents of one federation.
type crowd struct {
	t       *testing.T
	topics  mqtt.Topics
	lead    ed25519.PublicKey
	once    sync.Once
	payload []byte        // payload of every update; as long as the model
	update  wire.Manifest // manifest that describes the payload
	agents  []*thin
	up      atomic.Int64

	recipients, hellos, updates, received atomic.Int64
	rounds                                atomic.Uint64 // number of announcements that opened a round
	wg                                    sync.WaitGroup
}

func agentID(k int) wire.AgentID { return wire.AgentID(fmt.Sprintf("a%05d", k)) }

// newCrowd creates n simulated agents and returns their lines for the coordinator's list of agents.
func newCrowd(t *testing.T, lead string, n int) (*crowd, string) {
	topics, err := mqtt.NewTopics("", "scale")
	if err != nil {
		t.Fatal(err)
	}
	public, err := base64.StdEncoding.DecodeString(lead)
	if err != nil {
		t.Fatal(err)
	}
	c := &crowd{t: t, topics: topics, lead: public}
	list := ""
	for k := range n {
		seed := make([]byte, ed25519.SeedSize)
		copy(seed, strconv.Itoa(k+1))
		a := &thin{of: c, id: agentID(k), key: ed25519.NewKeyFromSeed(seed), rng: rand.New(rand.NewPCG(1, uint64(k)))}
		a.signer = host.Signer{Federation: "scale", Sender: a.id, Epoch: 1, Key: a.key, SignatureScheme: wire.Ed25519{}}
		if a.selection, err = wire.NewSelectionKey(a.key, c.lead); err != nil {
			t.Fatal(err)
		}
		c.agents = append(c.agents, a)
		list += fmt.Sprintf("%s %s\n", a.id, base64.StdEncoding.EncodeToString(a.key.Public().(ed25519.PublicKey)))
	}
	return c, list
}

// atOnce is the number of agents that connect concurrently. With more agents, connections would time out and be
// repeated.
const atOnce = 100

func (c *crowd) connect(ctx context.Context, urls []string) {
	for k, a := range c.agents {
		for int64(k)-c.up.Load() >= atOnce {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Millisecond):
			}
		}
		conn, err := mqtt.Dial(ctx, mqtt.Options{URL: urls[0], MoreURLs: urls[1:], ClientID: c.topics.ClientID(a.id),
			Will: func() mqtt.Message { return a.presence(wire.PresenceLost) }})
		if err != nil {
			c.t.Fatal(err)
		}
		a.conn = conn
		conn.Subscribe(mqtt.AtMostOnce, c.topics.CoordinatorToAgent(a.id), c.topics.Presence(a.id),
			c.topics.Announcement())
		c.wg.Go(a.run)
	}
}

func (c *crowd) close() {
	var all sync.WaitGroup
	for _, a := range c.agents {
		all.Go(func() { _ = a.conn.Close() })
	}
	all.Wait()
	c.wg.Wait()
}

func (a *thin) presence(state wire.PresenceState) mqtt.Message {
	p := wire.Presence{State: state, InstanceNonce: 1, MaxProtocolVersion: wire.ProtocolVersion,
		SoftwareVersion: "thin"}
	return mqtt.Message{Topic: a.of.topics.Presence(a.id), Payload: a.signer.SignedEnvelope(wire.TypePresence, 0, 0,
		p.Body()),
		Retained: true}
}

// run is the event loop of a simulated agent.
func (a *thin) run() {
	timer := time.NewTimer(time.Hour)
	for {
		wait := time.Hour
		if !a.hello.IsZero() {
			wait = time.Until(a.hello)
		} else if a.sender != nil {
			if at, ok := a.sender.Deadline(); ok {
				wait = time.Until(at)
			}
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
			a.tick()
		case e, open := <-a.conn.Events():
			if !open {
				return
			}
			switch e := e.(type) {
			case mqtt.LinkUp:
				a.of.up.Add(1)
				a.publish(a.presence(wire.PresenceOnline))
			case mqtt.MessageReceived:
				a.receive(e.Message)
			}
		}
	}
}

func (a *thin) publish(m mqtt.Message) {
	if err := a.conn.Publish(m); err != nil && !errors.Is(err, mqtt.ErrClosed) {
		a.of.t.Errorf("%s: %v", a.id, err)
	}
}

func (a *thin) tick() {
	if !a.hello.IsZero() && !time.Now().Before(a.hello) {
		a.hello = time.Time{}
		a.of.hellos.Add(1)
		m := wire.Hello{InstanceNonce: 1, FollowedAnnouncement: a.digest, Samples: 100,
			AnswerProbability: a.ann.ResponsePolicy.AnswerProbability}
		a.status(wire.TypeHello, m.Body())
	}
	a.send(transfer.Tick{})
}

func (a *thin) status(t wire.MessageType, body []byte) {
	a.publish(mqtt.Message{Topic: a.of.topics.AgentToCoordinator(a.id),
		Payload: a.signer.SealedEnvelope(a.to, t, a.order.Run, a.order.Round, body)})
}

func (a *thin) receive(m mqtt.Message) {
	switch {
	case len(m.Payload) == 0: // The broker has deleted a retained message: ignore it.
	case m.Topic == a.of.topics.Announcement():
		a.of.recipients.Add(1)
		a.announced(m.Payload)
	case m.Topic == a.of.topics.CoordinatorToAgent(a.id):
		a.told(m.Payload)
	case a.missing[m.Topic]:
		a.of.received.Add(int64(len(m.Payload)))
		delete(a.missing, m.Topic)
		a.conn.Unsubscribe(m.Topic)
		if len(a.missing) == 0 {
			a.offer()
		}
	}
}

// announced processes an announcement. It does not verify the signature, because the CPU time of agents is not
// measured.
func (a *thin) announced(p []byte) {
	e, err := wire.ParseEnvelope(p)
	if err != nil {
		a.of.t.Error(err)
		return
	}
	ann, err := wire.DecodeAnnouncement(e.Body)
	if err != nil {
		a.of.t.Error(err)
		return
	}
	order := wire.AnnouncementPositionOf(e.Header, &ann)
	if order.Compare(a.order) <= 0 {
		return
	}
	a.order, a.ann, a.digest, a.sender, a.missing = order, ann, e.Digest(), nil, nil
	a.sealTo(ann.SealPublicKey)
	a.hello = time.Time{}
	if of := ann.ResponsePolicy.AnswerProbability; ann.Phase == wire.PhaseGathering && (of == 0 ||
		a.rng.Uint32() < of) {
		spread := time.Duration(ann.HelloSpreadMillis) * time.Millisecond
		a.hello = time.Now().Add(time.Duration(a.rng.Int64N(int64(spread) + 1)))
	}
	if ann.Phase == wire.PhaseOpen {
		for seen := a.of.rounds.Load(); seen < uint64(order.Round) &&
			!a.of.rounds.CompareAndSwap(seen, uint64(order.Round)); seen = a.of.rounds.Load() {
			continue
		}
	}
	if _, drawn := ann.Selection.FindAgentWeight(a.selection, order,
		ann.InstanceNonce); drawn && ann.Phase == wire.PhaseOpen {
		a.work()
	}
}

func (a *thin) sealTo(announced wire.X25519PublicKey) {
	if announced == a.seals {
		return
	}
	a.seals = announced
	pair, err := wire.NewAgentSealKeys(a.key, announced)
	if err != nil {
		a.of.t.Error(err)
		return
	}
	a.to, a.down = &host.SealRecipient{AnnouncedKey: announced, Key: pair.FromAgentKey}, pair.ToAgentKey
}

// work starts to fetch the model, unless the announcement contains the model.
func (a *thin) work() {
	base := &a.ann.BaseModel
	if len(base.Inline) > 0 || len(base.SealedInline) > 0 {
		a.offer()
		return
	}
	a.missing = map[string]bool{}
	topic := func(part string) string { return a.of.topics.BlobPart(base.Hash.TopicLevel(), part) }
	all := []string{topic(mqtt.ManifestPartName)}
	for k := range wire.ChunkCount(int(base.Length)) {
		all = append(all, topic(transfer.ChunkPartName(k)))
	}
	for _, t := range all {
		a.missing[t] = true
	}
	a.conn.Subscribe(mqtt.AtMostOnce, all...)
}

// offer starts to send the prepared update to the coordinator.
func (a *thin) offer() {
	c := a.of
	c.once.Do(func() {
		x := make([]float32, a.ann.BaseModel.Length/4)
		for i := range x {
			x[i] = 0.01
		}
		c.payload = wire.AppendVector(nil, x)
		m, err := wire.NewManifest(c.payload, a.ann.UpdateSchema)
		if err != nil {
			c.t.Error(err)
		}
		c.update = m
	})
	a.sender = transfer.NewUpdateSender(c.update, c.payload, 0, int(a.ann.InitialCreditChunks), 0, a.rng)
	a.send(transfer.Start{})
}

// send passes an event to the state machine that sends the update, and executes the resulting effects.
func (a *thin) send(ev transfer.SendEvent) {
	if a.sender == nil {
		return
	}
	m := a.of.update
	id := transfer.UploadID(m.Hash)
	for _, e := range a.sender.Step(time.Now(), ev) {
		switch e := e.(type) {
		case transfer.SendManifest:
			u := wire.Update{Kind: a.ann.Kind, BaseModelDigest: a.ann.BaseModel.Hash, PayloadManifest: m,
				InlinePayload: a.sender.InlinePayload(),
				LocalSteps:    1, Samples: 100, RiskBefore: 1, RiskAfter: 1, SecondsPerLocalStep: 1e-3,
				UnsolicitedChunks: uint32(e.UnsolicitedChunks)}
			a.sender.SetSealer(a.to.Key.BlobSealer(m.Hash))
			a.publish(mqtt.Message{Topic: a.of.topics.UpdatePart(a.id, id, transfer.ManifestPartName),
				Payload: a.signer.SealedEnvelope(a.to, wire.TypeUpdate, a.order.Run, a.order.Round, u.Body())})
		case transfer.SendChunk:
			a.publish(mqtt.Message{Topic: a.of.topics.UpdatePart(a.id, id, transfer.ChunkPartName(e.ChunkIndex)),
				Payload: a.sender.ChunkMessage(e.ChunkIndex)})
		case transfer.UploadFinished:
			if a.sender = nil; e.IsAccepted {
				a.served = a.order.Round
				a.of.updates.Add(1)
			} else {
				a.of.t.Errorf("%s: the update is refused: %s", a.id, e.RefusalReason)
			}
			return
		}
	}
}

// told processes a message from the coordinator to this agent.
func (a *thin) told(p []byte) {
	e, err := wire.ParseEnvelope(p)
	if err == nil && e.Type == wire.TypeSealed {
		e, err = a.down.OpenMessage(e)
	}
	if err != nil {
		a.of.t.Errorf("%s: %v", a.id, err)
		return
	}
	switch e.Type {
	case wire.TypeInvitation:
		if a.sender == nil && len(a.missing) == 0 && e.Round == a.order.Round && a.served != e.Round {
			a.work()
		}
	case wire.TypeChunkCredit:
		if m, err := wire.DecodeChunkCredit(e.Body); err == nil {
			a.send(transfer.CreditGranted{ChunkCredit: m})
		}
	case wire.TypeUpdateAccepted:
		if m, err := wire.DecodeUpdateAccepted(e.Body); err == nil {
			a.send(transfer.UpdateAccepted{UpdateAccepted: m})
		}
	case wire.TypeUpdateRefused:
		if m, err := wire.DecodeUpdateRefused(e.Body); err == nil {
			a.send(transfer.UpdateRefused{UpdateRefused: m})
		}
	}
}
