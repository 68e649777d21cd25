//go:build chaos

package chaos

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
)

// recorded contains messages that were recorded from the federation, for replay.
type recorded struct {
	mu       sync.Mutex
	messages []mqtt.Message
}

// record subscribes to the messages of the federation and keeps the newest of them until the end of the test.
func (p *plant) record() *recorded {
	p.t.Helper()
	conn := p.stranger("recorder")
	conn.Subscribe(mqtt.AtMostOnce, "fl/#")
	var r recorded
	go func() {
		for e := range conn.Events() {
			if m, ok := e.(mqtt.MessageReceived); ok {
				r.mu.Lock()
				if len(r.messages) < 20_000 {
					r.messages = append(r.messages, m.Message)
				}
				r.mu.Unlock()
			}
		}
	}()
	return &r
}

// any returns a copy of a randomly selected recorded message.
func (r *recorded) any(rng *rand.Rand) mqtt.Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.messages[rng.IntN(len(r.messages))]
	m.Payload = append([]byte(nil), m.Payload...)
	return m
}

// stranger connects a client that is not in the coordinator's list of agents.
func (p *plant) stranger(name string) mqtt.Conn {
	p.t.Helper()
	conn, err := mqtt.Dial(p.t.Context(),
		mqtt.Options{URL: p.Broker, ClientID: name, MailboxMessages: 1 << 16, MailboxBytes: 256 << 20,
			OutboxMessages: 1 << 14})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// flood sends messages for the duration long and returns the number of messages sent.
func (p *plant) flood(long time.Duration, next func(rng *rand.Rand) mqtt.Message) int64 {
	p.t.Helper()
	var sent atomic.Int64
	var both sync.WaitGroup
	end := time.Now().Add(long)
	for i := range 2 {
		conn, rng := p.stranger(fmt.Sprintf("hostile-%d-%d", i, p.rng.Uint32())),
			rand.New(rand.NewPCG(*seed, uint64(i)))
		both.Go(func() {
			for time.Now().Before(end) {
				if conn.Publish(next(rng)) != nil {
					pause(time.Millisecond) // not connected yet, or the outbox is full
					continue
				}
				sent.Add(1)
			}
		})
	}
	both.Wait()
	return sent.Load()
}

func TestHostile(t *testing.T) {
	results.run(t, fault{"garbage", "20 s of hostile messages on every topic, from two connections",
		"no crash; memory grows by less than 32 MB; rounds continue", bearsGarbage})
	results.run(t, fault{"replay",
		"all recorded messages are sent again, shuffled, also after a restart of the coordinator",
		"no message is used twice; no round abandoned; bit-equal", bearsReplay})
	results.run(t, fault{"clone", "two devices have one identity",
		"the coordinator and a device report it; rounds continue", tellsOfClone})
}

func bearsGarbage(t *testing.T) string {
	p := newPlant(t, layout{agents: 4})
	p.start()
	p.await(5, time.Minute)
	seen := p.record()
	p.goOn(5, time.Minute)
	lead, agent := p.lead.Memory(p.t, "VmRSS"), p.agents[p.ids[0]].Memory(p.t, "VmRSS")
	sent := p.flood(20*time.Second, func(rng *rand.Rand) mqtt.Message {
		m := seen.any(rng)
		payload := m.Payload
		switch rng.IntN(4) {
		case 0: // flip a bit
			if len(payload) > 0 {
				payload[rng.IntN(len(payload))] ^= 1 << rng.IntN(8)
			}
		case 1: // truncate
			payload = payload[:rng.IntN(len(payload)+1)]
		case 2: // replace with random bytes
			for i := range payload {
				payload[i] = byte(rng.Uint32())
			}
		default: // send on a topic of another kind
			m.Topic = seen.any(rng).Topic
		}
		return mqtt.Message{Topic: m.Topic, Payload: payload, Retained: m.Retained &&
			!strings.HasSuffix(m.Topic, "/round")}
	})
	after := p.goOn(10, 2*time.Minute)
	for name, grown := range map[string]float64{
		"coordinator": p.lead.Memory(p.t, "VmRSS") - lead,
		"agent":       p.agents[p.ids[0]].Memory(p.t, "VmRSS") - agent,
	} {
		if grown > 32e6 {
			t.Errorf("the %s holds %.0f MB more than before", name, grown/1e6)
		}
	}
	p.stop()
	p.checkHistory()
	return fmt.Sprintf("%d messages; ten more rounds in %s", sent, after.Round(10*time.Millisecond))
}

func bearsReplay(t *testing.T) string {
	l := layout{agents: 4}
	p := newPlant(t, l)
	seen := p.record()
	p.start()
	p.await(20, time.Minute)
	again := func(rng *rand.Rand) mqtt.Message {
		m := seen.any(rng)
		return mqtt.Message{Topic: m.Topic, Payload: m.Payload}
	}
	sent := p.flood(5*time.Second, again)
	p.lead.Kill()
	p.startLead()
	sent += p.flood(5*time.Second, again)
	p.goOn(5, time.Minute)
	p.stop()
	p.checkHistory()
	if n := p.abandoned(); n > 0 {
		t.Errorf("%d rounds were abandoned", n)
	}
	p.sameAsUndisturbed(l)
	return fmt.Sprintf("%d messages: bit-equal", sent)
}

func tellsOfClone(t *testing.T) string {
	p := newPlant(t, layout{agents: 4, quorum: 3, deadline: 20 * time.Second})
	p.start()
	p.await(3, time.Minute)
	p.copyFolder("state-agent-1", "state-clone")
	clone := p.Daemon(t, "agentd", "agent-1", "--set", "state_dir="+p.Path("state-clone"))
	began := time.Now()
	p.within(3*time.Minute, "the coordinator tells of the clone", func() bool {
		return strings.Contains(p.lead.Log(), "two devices use the identity of the same agent")
	})
	told := time.Since(began)
	p.within(3*time.Minute, "a device tells of the clone", func() bool {
		return strings.Contains(p.agents["agent-1"].Log()+clone.Log(),
			"another device uses the identity of this agent")
	})
	clone.Kill()
	p.goOn(5, 2*time.Minute)
	return fmt.Sprintf("reported after %s", told.Round(time.Second))
}
