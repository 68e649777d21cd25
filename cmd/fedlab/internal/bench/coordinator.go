package bench

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"iter"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// server is what package coordinator does of a round's transport, and nothing
// else of it: one goroutine owns all, heavy work returns a function to it.
type server struct {
	topics   mqtt.Topics
	conn     *mqtt.Session
	voice    *voice
	keys     map[wire.AgentID]ed25519.PublicKey
	receiver *transfer.Receiver
	results  chan func()
	begin    chan *play
	play     *play // the round under way

	sealed   map[wire.AgentID][]byte      // the signed manifests, kept with the updates
	accepted map[wire.AgentID]wire.Digest // of the round
	next     func() (mqtt.Message, bool)
	first    *mqtt.Message // taken from next, and not published yet
	retry    time.Time
}

func (s *server) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	events := s.conn.Events()
	for {
		select {
		case <-ctx.Done():
			return
		case s.play = <-s.begin:
			s.publish()
		case e, ok := <-events:
			if !ok {
				return
			}
			if e, ok := e.(mqtt.Received); ok && s.play != nil {
				s.play.check(s.take(e.Message))
			}
		case result := <-s.results:
			result()
		case <-timer.C:
			s.receive(transfer.Tick{})
		}
		s.pump()
		timer.Reset(time.Until(s.deadline()))
	}
}

func (s *server) deadline() time.Time {
	at := time.Now().Add(time.Hour)
	if t, ok := s.receiver.Deadline(); ok && t.Before(at) {
		at = t
	}
	if !s.retry.IsZero() && s.retry.Before(at) {
		at = s.retry
	}
	return at
}

// publish begins to say what the round is about: the model's parts, unless it
// rides in the announcement, and the announcement.
func (s *server) publish() {
	p := s.play
	ref, parts, err := transfer.Publish(p.model, schema)
	p.check(err)
	if len(p.model) <= wire.MaxInline {
		ref.Inline, ref.Manifest = p.model, wire.Digest{}
	}
	a := wire.Announcement{
		Attempt: 1, Phase: wire.PhaseOpen, Kind: wire.KindTraining, Version: wire.ModelVersion(p.number), Task: task,
		Base: ref, Schema: schema,
	}
	sealed := s.voice.seal(p.signed, wire.TypeAnnouncement, p.number, a.Body())
	messages := func(yield func(mqtt.Message) bool) {
		if ref.Inline == nil {
			for part, payload := range parts {
				if !yield(retained(s.topics.Blob(ref.Hash.Topic(), part), payload)) {
					return
				}
			}
		}
		yield(retained(s.topics.Round(), sealed))
	}
	s.next, _ = iter.Pull(messages)
}

// clear deletes the parts of a model at the broker, when the clock is stopped.
func (s *server) clear(model []byte) error {
	ref, parts, err := transfer.Publish(model, schema)
	if err != nil || len(model) <= wire.MaxInline {
		return err
	}
	for part := range parts {
		if err := s.conn.Publish(retained(s.topics.Blob(ref.Hash.Topic(), part), nil)); err != nil {
			return err
		}
	}
	return nil
}

func retained(topic string, payload []byte) mqtt.Message {
	return mqtt.Message{Topic: topic, Payload: payload, QoS: mqtt.AtLeastOnce, Retained: true}
}

// pump publishes as much as the connection takes.
func (s *server) pump() {
	s.retry = time.Time{}
	for s.next != nil {
		if s.first == nil {
			m, ok := s.next()
			if !ok {
				s.next = nil
				return
			}
			s.first = &m
		}
		err := s.conn.Publish(*s.first)
		if errors.Is(err, mqtt.ErrBusy) {
			s.retry = time.Now().Add(5 * time.Millisecond)
			return
		}
		s.play.check(err)
		s.first = nil
	}
}

// take does with one message what the coordinator does.
func (s *server) take(m mqtt.Message) error {
	kind, agent, id, part, err := s.topics.Parse(m.Topic)
	if err != nil || kind != mqtt.KindUpdate {
		return err
	}
	if part != transfer.ManifestPart {
		s.receive(transfer.Chunk{Agent: agent, Transfer: id, Payload: m.Payload})
		return nil
	}
	e, err := open(s.play.signed, m.Payload, s.keys[agent])
	if err != nil {
		return err
	}
	u, err := wire.DecodeUpdate(e.Body)
	if err != nil || e.Round != s.play.number {
		return err
	}
	if s.accepted[agent] == u.Payload.Hash { // the answer was lost
		s.tell(agent, wire.TypeAccepted, (&wire.Accepted{Update: u.Payload.Hash}).Body())
		return nil
	}
	s.sealed[agent] = m.Payload
	s.receive(transfer.Offer{Agent: agent, Boot: e.Epoch, Manifest: u.Payload, Inline: u.Inline})
	return nil
}

func (s *server) receive(ev transfer.ReceiveEvent) {
	for _, e := range s.receiver.Step(time.Now(), ev) {
		switch e := e.(type) {
		case transfer.Open: // all our updates are received in memory
			s.receive(transfer.Opened{Agent: e.Agent, Blob: e.Manifest.Hash,
				Data: transfer.NewMemory(int(e.Manifest.Length))})
		case transfer.Grant:
			s.tell(e.Agent, wire.TypeCredit, e.Credit.Body())
		case transfer.Complete:
			s.keep(e)
		case transfer.Refuse:
			s.play.check(errors.New("refused: " + e.Reason.String()))
		}
	}
}

// keep holds an update against its hash and stores it, beside the owner, and
// then accepts it.
func (s *server) keep(e transfer.Complete) {
	p := s.play
	pieces := e.Data.(*transfer.Memory).Pieces()
	entry := store.Entry{Agent: string(e.Agent), Digest: e.Digest, Meta: s.sealed[e.Agent],
		Size: int64(p.update.Length)}
	go func() {
		var err error
		switch {
		case p.spool != nil:
			err = p.spool.Put(context.Background(), entry, pieces...)
		case sum(pieces) != e.Digest:
			err = store.ErrDigest
		}
		s.results <- func() {
			p.check(err)
			s.receive(transfer.Stored{Agent: e.Agent})
			s.accepted[e.Agent] = e.Digest
			s.tell(e.Agent, wire.TypeAccepted, (&wire.Accepted{Update: e.Digest}).Body())
			delete(s.sealed, e.Agent)
		}
	}()
}

func sum(pieces [][]byte) wire.Digest {
	h := sha256.New()
	for _, p := range pieces {
		h.Write(p)
	}
	return wire.Digest(h.Sum(nil))
}

// tell says something to one agent.
func (s *server) tell(agent wire.AgentID, t wire.Type, body []byte) {
	s.play.check(s.conn.Publish(mqtt.Message{
		Topic: s.topics.Device(agent), Payload: s.voice.seal(s.play.signed, t, s.play.number, body),
		QoS: mqtt.AtMostOnce,
	}))
}
