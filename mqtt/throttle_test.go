package mqtt_test

import (
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eclipse/paho.mqtt.golang/packets"

	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
)

// These are the parameters of requirement R13: a link of 20 kB/s, a keepalive of 60 s and a timeout of 30 s for
// PINGRESP. The tests divide all times by 10: 200 kB/s, 6 s and 3 s. A message of 60 KiB takes 3.1 s, here 0.3 s, which
// is less than a quarter of 30 s as R13 requires. A ping waits for the data in the kernel: twice sendBufferBytes, 256
// KiB or 13 s, here 1.3 s.
const (
	slowRate      = 10 * 20_000
	slowKeepAlive = 6 * time.Second
	slowMessage   = 60 << 10
)

// stays publishes n messages over a slow link in either direction, with at most window messages that were not received
// yet, and counts the messages that arrive. Any LinkDown event fails the test.
func stays(t *testing.T, from, to mqtt.Conn, n, window int) {
	t.Helper()
	to.Subscribe(mqtt.AtMostOnce, "x")
	mqtttest.SyncWithBroker(t, to)
	for sent, got := 0, 0; got < n; got++ {
		for ; sent < min(n, got+window); sent++ {
			mqtttest.Publish(t, from, mqtt.Message{Topic: "x", Payload: make([]byte, slowMessage)})
		}
		if m := mqtttest.Received(t, to); len(m.Payload) != slowMessage {
			t.Fatalf("message %d has %d bytes", got, len(m.Payload))
		}
	}
	mqtttest.SyncWithBroker(t, from) // SyncWithBroker fails if a LinkDown arrives before its own message
}

// slow returns the URL of a slow proxy to a broker.
func slow(t *testing.T, url string, rate int) string {
	t.Helper()
	return "tcp://" + brokers.NewSlowProxy(t, strings.TrimPrefix(url, "tcp://"), rate)
}

func TestR13SlowUpload(t *testing.T) {
	notQuick(t)
	t.Parallel()
	b := newEmbedded(t, 128<<10)
	b.start(t)
	t.Cleanup(b.stop)
	// Send 3 MiB at once. If all data were in the kernel, a ping after 6 s would wait for 7 s or more.
	thin := dial(t, mqtt.Options{URL: slow(t, b.url(), slowRate), ClientID: "slow", MinLinkRate: slowRate,
		KeepAlive: slowKeepAlive})
	stays(t, thin, dial(t, mqtt.Options{URL: b.url(), ClientID: "fast"}), 3<<20/slowMessage, 1000)
}

func TestR13SlowDownload(t *testing.T) {
	notQuick(t)
	t.Parallel()
	b := newEmbedded(t, 128<<10)
	b.start(t)
	t.Cleanup(b.stop)
	// A window of 4 messages, as in a pull: 12.3 s at 20 kB/s, here 1.2 s. A PINGRESP waits behind the messages that
	// the broker has queued.
	thin := dial(t, mqtt.Options{URL: slow(t, b.url(), slowRate), ClientID: "slow", MinLinkRate: slowRate,
		KeepAlive: slowKeepAlive})
	stays(t, dial(t, mqtt.Options{URL: b.url(), ClientID: "fast"}), thin, 1<<20/slowMessage, 4)
}

// TestR13SlowOversized checks that the link survives an oversized message that arrives for longer than the PINGRESP
// timeout (R13).
func TestR13SlowOversized(t *testing.T) {
	notQuick(t)
	t.Parallel()
	const payload = 3 << 20 // takes 16 s, with a keepalive of 6 s
	b := newEmbedded(t, 4<<20)
	b.start(t)
	t.Cleanup(b.stop)
	camera := dial(t, mqtt.Options{URL: b.url(), ClientID: "camera", MaxPacket: 4 << 20})
	mqtttest.Publish(t, camera, mqtt.Message{Topic: "camera", Payload: make([]byte, payload), Retained: true})
	mqtttest.SyncWithBroker(t, camera)
	thin := dial(t, mqtt.Options{URL: slow(t, b.url(), slowRate), ClientID: "slow", MinLinkRate: slowRate,
		KeepAlive: slowKeepAlive})
	thin.Subscribe(mqtt.AtLeastOnce, "camera")
	mqtttest.SyncWithBroker(t, thin) // SyncWithBroker fails if a LinkDown arrives before its own message
}

// TestR13ShortQueue checks that when a broker stops reading, the kernel holds only a few seconds of unsent data, even
// for a slow link (R13).
func TestR13ShortQueue(t *testing.T) {
	notQuick(t)
	t.Parallel()
	stop := make(chan struct{})
	var reading atomic.Bool
	f := startFake(t, func(_ net.Conn, p packets.ControlPacket) packets.ControlPacket {
		if _, ok := p.(*packets.PublishPacket); ok && !reading.Swap(true) {
			<-stop
		}
		return usual(p)
	})
	t.Cleanup(func() { close(stop) })
	counts := newCounter()
	s := dial(t, mqtt.Options{URL: f.url(), ClientID: "s", WriteTimeout: 3 * time.Second,
		ObserveMessage: counts.observe})
	const n = 8 << 20 / (slowMessage + 100)
	for range n {
		mqtttest.Publish(t, s, mqtt.Message{Topic: "x", Payload: make([]byte, slowMessage)})
	}
	mqtttest.WantDown(t, s)
	eventually(t, "every message has a fate", func() bool { return counts.get(outgoing) == n })
	// The kernel may hold 256 KiB in the send buffer of the session, and the data in the receive buffer of the broker.
	if written := (n - counts.get(outgoingDropped)) * slowMessage; written > 600_000 {
		t.Errorf("%d bytes in the kernel: half a minute at 20 kB/s", written)
	}
}

// TestR13ByRate checks the limits of R13 for several link rates: the largest message takes at most a quarter of the
// PINGRESP timeout, which is half the keepalive; the kernel's buffer takes at most half of it; and the write timeout is
// long enough.
func TestR13ByRate(t *testing.T) {
	for _, rate := range []int{1000, 2000, 8738, 20_000, 1_000_000, 1_000_000_000} {
		keepAlive := max(time.Minute, mqtt.MinKeepAlive(rate))
		held, write, message := mqtt.LinkTimes(mqtt.Options{MinLinkRate: rate, KeepAlive: keepAlive})
		if 4*message > keepAlive/2 || 2*held > keepAlive/2 || write < 4*message || write < 20*time.Second {
			t.Errorf("%d B/s, keepalive %v: a message takes %v, what the kernel holds %v, a write may take %v", rate,
				keepAlive, message, held, write)
		}
	}
	if least := mqtt.MinKeepAlive(mqtt.DefaultMinLinkRate); least > time.Minute {
		t.Errorf("the usual rate needs %v", least)
	}
	if least := mqtt.MinKeepAlive(2000); least < 4*time.Minute || least > 5*time.Minute || least%time.Second != 0 {
		t.Errorf("2 kB/s need %v", least)
	}
}

// notQuick skips a test with a slow link in short mode.
func notQuick(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("waits on a slow line")
	}
}
