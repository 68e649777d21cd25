package coordinator_test

import (
	"bytes"
	"iter"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/broker"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// parts counts the publications of blob parts by topic.
type parts struct {
	mu     sync.Mutex
	topics map[string]int
}

// note counts a message that the coordinator publishes.
func (p *parts) note(m any) {
	if m, ok := m.(mqtt.Message); ok && strings.Contains(m.Topic, "/m/") {
		p.mu.Lock()
		p.topics[m.Topic]++
		p.mu.Unlock()
	}
}

// erase deletes all parts of blobs at the broker, like a broker that loses its memory.
func (p *parts) erase(f *federation) {
	conn := f.broker.Connect("eraser", nil)
	defer conn.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.topics) == 0 {
		f.t.Error("nothing to erase")
	}
	for topic := range p.topics {
		if err := conn.Publish(mqtt.Message{Topic: topic, Retained: true}); err != nil {
			f.t.Error(err)
		}
	}
}

// TestGoneInTheMiddle deletes the model or the task at the broker while agents download it. The agents must report the
// missing parts, the coordinator must publish them again, and no agent may miss the round.
func TestGoneInTheMiddle(t *testing.T) {
	for _, tt := range []struct {
		name  string
		after int // number of parts that are delivered before the deletion
		setup func(*federation)
	}{
		{"small model", 3, func(f *federation) { // the model is received in memory, with more chunks than a window
			large(f)
			f.cfg.Task.Model.HiddenUnits = []uint32{400, 400}
		}},
		{"large model", 60, huge},
		{"task", 0, wideTask},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				links := newTraffic("/m/", tt.after)
				f := newFederation(t, 2, memory.Options{Delay: links.delay})
				f.cfg.Standardize = false
				tt.setup(f)
				said := &parts{topics: map[string]int{}}
				f.coord.moment = said.note
				f.cfg.Round.MaxAggregations = 1
				for _, a := range f.agents {
					a.moment = links.begin
				}
				if tt.after == 0 {
					f.coord.start()
					wait(time.Minute)
					said.erase(f)
					for _, a := range f.agents {
						a.start()
					}
				} else {
					f.start()
					<-links.news
					said.erase(f)
				}
				f.finished(time.Hour)
				f.checkOnce(tt.name)
				if no := events[round.AgentDeclined](f); len(no) > 0 {
					t.Errorf("declined: %+v", no)
				}
				again := 0
				for _, n := range said.topics {
					again += min(n-1, 1)
				}
				if again == 0 {
					t.Error("nothing that was deleted was published again")
				}
				for _, c := range events[round.RoundClosed](f) {
					if c.AcceptedUpdates != 2 || c.ClosedByDeadline {
						t.Errorf("%+v", c)
					}
				}
			})
		})
	}
}

// wideTask configures a task that is too large for the announcement.
func wideTask(f *federation) {
	large(f)
	f.cfg.Task.Name = strings.Repeat("x", 100)
	wide := []string{"warm", "wet", "wind"}
	for i := range 200 {
		wide = append(wide, strings.Repeat("y", 100)+string(rune('a'+i/26))+string(rune('a'+i%26)))
	}
	f.cfg.Task.Features = wide
	f.cfg.Task.Model.HiddenUnits = nil
	for i, a := range f.agents {
		a.data = wideRows(uint64(i), wide)
	}
}

// wideRows returns rows with the given columns, of which only the first three have an effect.
func wideRows(seed uint64, columns []string) table {
	rng := rand.New(rand.NewPCG(seed, 9))
	var b strings.Builder
	b.WriteString(strings.Join(columns, ",") + ",power\n")
	for range 20 {
		for range columns {
			b.WriteString([]string{"0.1,", "0.2,", "0.3,"}[rng.IntN(3)])
		}
		b.WriteString("1\n")
	}
	return table(b.String())
}

// publisher publishes and deletes the parts of a blob at a real broker.
type publisher struct {
	t      *testing.T
	conn   mqtt.Conn
	topics mqtt.Topics
	ref    wire.BlobRef
	parts  iter.Seq2[string, []byte]
}

func (p *publisher) publish(topic string, payload []byte, retained bool) {
	if err := p.conn.Publish(mqtt.Message{Topic: topic, Payload: payload, QoS: mqtt.AtLeastOnce,
		Retained: retained}); err != nil {
		p.t.Error(err)
	}
}

// all publishes every part and waits until the broker has them.
func (p *publisher) all() {
	for part, payload := range p.parts {
		p.publish(p.topics.BlobPart(p.ref.Hash.TopicLevel(), part), payload, true)
	}
	p.settle()
}

// deleteFrom deletes all parts from first on and waits until the broker has done so.
func (p *publisher) deleteFrom(first string) {
	reached := false
	for part := range p.parts {
		if reached = reached || part == first; reached {
			p.publish(p.topics.BlobPart(p.ref.Hash.TopicLevel(), part), nil, true)
		}
	}
	p.settle()
}

// settle waits until the broker has processed all publications.
func (p *publisher) settle() {
	marker := p.topics.CoordinatorToAgent("marker")
	p.conn.Subscribe(mqtt.AtLeastOnce, marker)
	p.publish(marker, nil, false)
	for e := range p.conn.Events() {
		if r, ok := e.(mqtt.MessageReceived); ok && r.Topic == marker {
			return
		}
	}
}

// dialUp returns an established connection.
func dialUp(t *testing.T, url, id string) mqtt.Conn {
	c, err := mqtt.Dial(t.Context(),
		mqtt.Options{URL: url, ClientID: id, MailboxMessages: 4096, MailboxBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	for e := range c.Events() {
		if _, ok := e.(mqtt.LinkUp); ok {
			return c
		}
	}
	t.Fatal("closed")
	return nil
}

// TestGoneOnTheEmbeddedBroker checks that if a blob is deleted at the embedded broker during a download and then
// published again, the agent downloads only the missing parts.
func TestGoneOnTheEmbeddedBroker(t *testing.T) {
	server, err := broker.Start(broker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	topics, err := mqtt.NewTopics("", fedName)
	if err != nil {
		t.Fatal(err)
	}
	blob := make([]byte, 40*wire.MaxChunkBytes)
	for i := range blob {
		blob[i] = byte(i * i >> 8)
	}
	ref, parts, err := transfer.BlobMessages(blob, wire.Digest{})
	if err != nil {
		t.Fatal(err)
	}
	source := &publisher{t, dialUp(t, server.URL(), "plant-coordinator"), topics, ref, parts}
	source.all()
	cfg := transfer.DefaultPullerConfig()
	cfg.MaxStallTimeout, cfg.MaxStalls = 300*time.Millisecond, 3
	store := &counted{MemoryChunkStorage: transfer.NewMemoryChunkStorage(len(blob)), puts: map[int]int{}}
	p := &realPull{conn: dialUp(t, server.URL(), "plant-a"), topics: topics, ref: ref, store: store,
		rng: rand.New(rand.NewPCG(1, 1))}
	p.on = func(k int) {
		if k == 10 {
			source.deleteFrom("20")
		}
	}
	if err := p.run(cfg); err == nil || !strings.Contains(err.Error(), transfer.ErrBlobGone.Error()) {
		t.Fatalf("deleted in the middle: %v", err)
	}
	p.on = func(int) {}
	source.all()
	if err := p.run(cfg); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(bytes.Join(store.ChunkPayloads(), nil), blob) {
		t.Error("the blob is wrong")
	}
	for k, n := range store.puts {
		if n != 1 {
			t.Errorf("chunk %d was stored %d times", k, n)
		}
	}
}

// counted is a chunk storage that persists across downloads and counts writes.
type counted struct {
	*transfer.MemoryChunkStorage
	puts map[int]int
}

func (c *counted) HasChunk(k int) bool { return c.puts[k] > 0 }

func (c *counted) PutChunk(k int, p []byte) error {
	c.puts[k]++
	return c.MemoryChunkStorage.PutChunk(k, p)
}

// realPull is the host of a puller over a real connection.
type realPull struct {
	conn   mqtt.Conn
	topics mqtt.Topics
	ref    wire.BlobRef
	store  *counted
	rng    *rand.Rand
	on     func(chunks int)
}

func (p *realPull) run(cfg transfer.PullerConfig) (err error) {
	m := transfer.NewBlobPuller(cfg, p.ref, p.rng)
	ended := false
	var step func(ev transfer.PullEvent)
	named := func(parts []string) (topics []string) {
		for _, part := range parts {
			topics = append(topics, p.topics.BlobPart(p.ref.Hash.TopicLevel(), part))
		}
		return topics
	}
	step = func(ev transfer.PullEvent) {
		for _, e := range m.Step(time.Now(), ev) {
			switch e := e.(type) {
			case transfer.SubscribeParts:
				p.conn.Subscribe(mqtt.AtMostOnce, named(e.Parts)...)
			case transfer.UnsubscribeParts:
				p.conn.Unsubscribe(named(e.Parts)...)
			case transfer.OpenStorage:
				step(transfer.StorageOpened{BlobDigest: p.ref.Hash, Storage: p.store})
			case transfer.PullDone:
				ended = true
			case transfer.PullFailed:
				ended, err = true, e.Err
			}
		}
	}
	step(transfer.Start{})
	for !ended {
		at, ok := m.Deadline()
		if !ok {
			at = time.Now().Add(time.Minute)
		}
		select {
		case e := <-p.conn.Events():
			if r, ok := e.(mqtt.MessageReceived); ok {
				_, _, _, part, err := p.topics.ParseTopic(r.Topic)
				if err != nil {
					return err
				}
				before := len(p.store.puts)
				step(transfer.PartReceived{PartName: part, Payload: r.Payload})
				if n := len(p.store.puts); n > before {
					p.on(n)
				}
			}
		case <-time.After(time.Until(at)):
			step(transfer.Tick{})
		}
	}
	return err
}
