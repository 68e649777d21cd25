package conformance

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit/hosts"
	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// cable is a TCP proxy in front of a broker. cable can be cut, which closes all forwarded connections.
type cable struct {
	listener net.Listener
	target   string
	mu       sync.Mutex
	conns    []net.Conn
	running  sync.WaitGroup
}

// lay starts a cable in front of a broker. It returns the cable and a broker whose address is the address of the cable.
func lay(t *testing.T, b *broker) (*cable, *broker) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cable{listener: listener, target: b.address}
	c.running.Go(c.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		c.cut()
		c.running.Wait()
	})
	far := *b
	far.address, far.others = listener.Addr().String(), nil
	return c, &far
}

func (c *cable) accept() {
	for {
		near, err := c.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", c.target)
		if err != nil {
			_ = near.Close()
			continue
		}
		c.mu.Lock()
		c.conns = append(c.conns, near, far)
		c.mu.Unlock()
		for _, end := range [][2]net.Conn{{near, far}, {far, near}} {
			c.running.Go(func() {
				_, _ = io.Copy(end[0], end[1])
				// The other direction stays open, because it may still carry the last messages of the client.
				_ = end[0].(*net.TCPConn).CloseWrite()
			})
		}
	}
}

func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = nil
}

// testPresence observes the presence messages of an agent that connects, loses its link, reconnects and leaves.
// Afterwards it checks the retained presence message.
func testPresence(t *testing.T, s subject) {
	b := s.start(t, needs{agents: 1})
	topic := hosts.TopicsOf(t, federation).Presence(agentID(0))
	watcher := mqtttest.Dial(t, b.as(anyOne(0)))
	watcher.Subscribe(mqtt.AtLeastOnce, topic)
	mqtttest.SyncWithBroker(t, watcher)
	link, far := lay(t, b)
	f := newFleet(t, far, 1)
	f.startAgent(0, nil)
	var last wire.Envelope
	expect := func(c mqtt.Conn, state wire.PresenceState) {
		t.Helper()
		m := mqtttest.Received(t, c)
		e, err := wire.ParseEnvelope(m.Payload)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Verify(hosts.PublicOf(agentID(0))); err != nil {
			t.Error(err)
		}
		p, err := wire.DecodePresence(e.Body)
		if err != nil || m.Topic != topic || p.State != state || e.Epoch != 1 {
			t.Errorf("got %v of epoch %d under %s, %v; want %v", p.State, e.Epoch, m.Topic, err, state)
		}
		if state == wire.PresenceLost && e.Sequence <= last.Sequence {
			t.Errorf("the will has sequence %d, older than %d before it", e.Sequence, last.Sequence)
		}
		last = e
	}
	expect(watcher, wire.PresenceOnline)
	for range 3 {
		link.cut()
		expect(watcher, wire.PresenceLost)
		expect(watcher, wire.PresenceOnline)
	}
	f.Stop()
	expect(watcher, wire.PresenceOffline)
	mqtttest.SyncWithBroker(t, watcher) // Check that the broker publishes no will.
	late := mqtttest.Dial(t, b.as(anyOne(1)))
	mqtttest.SettleRetained(t, watcher, late)
	s.subscribeAll(t, late, strings.Replace(topic, federation+"-a0", "+", 1), topic)
	expect(late, wire.PresenceOffline)
}
