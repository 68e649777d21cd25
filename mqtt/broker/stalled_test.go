package broker_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"testing"
	"time"

	mochi "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/listeners"
	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/broker"
)

// BenchmarkStalledSubscribers measures how long each of 20 messages of 1 MiB takes to a healthy subscriber while ten
// other subscribers do not read. Unmodified mochi blocks after some messages until the keepalive of the stalled
// subscribers expires after 90 s.
func BenchmarkStalledSubscribers(b *testing.B) {
	const packet = 2 << 20
	b.Run("ours", func(b *testing.B) {
		for b.Loop() {
			s := start(b, broker.Options{MaxPacket: packet})
			besideStalled(b, s.URL(), packet)
			_ = s.Close()
		}
	})
	b.Run("mochi", func(b *testing.B) {
		for b.Loop() {
			url, end := startMochi(b)
			besideStalled(b, url, packet)
			end()
		}
	})
}

// besideStalled performs one run of the benchmark.
func besideStalled(b *testing.B, url string, packet int) {
	const stalled, messages, size, limit = 10, 20, 1 << 20, 2 * time.Minute
	var conns []brokers.RawClient
	for i := range stalled {
		c := rawDialURL(b, url)
		connect(c, fmt.Sprint("stalled ", i))
		subscribe(c, 1, 1, "x")
		conns = append(conns, c)
	}
	healthy := mqtttest.Dial(b, mqtt.Options{URL: url, ClientID: "healthy", MaxPacket: packet})
	healthy.Subscribe(mqtt.AtLeastOnce, "x", "ready")
	if err := healthy.Publish(mqtt.Message{Topic: "ready"}); err != nil {
		b.Fatal(err)
	}
	mqtttest.Received(b, healthy)
	publisher := mqtttest.Dial(b, mqtt.Options{URL: url, ClientID: "publisher", MaxPacket: packet})
	var took []time.Duration
	for arrived := true; arrived && len(took) < messages; {
		begun := time.Now()
		if err := publisher.Publish(mqtt.Message{Topic: "x", Payload: make([]byte, size),
			QoS: mqtt.AtLeastOnce}); err != nil {
			b.Fatal(err)
		}
		select {
		case <-healthy.Events():
		case <-time.After(limit):
			arrived = false
		}
		took = append(took, time.Since(begun))
	}
	for _, c := range conns {
		_ = c.Close()
	}
	_, _ = publisher.Close(), healthy.Close()
	slices.Sort(took)
	milliseconds := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	b.ReportMetric(milliseconds(took[len(took)/2]), "median-ms")
	b.ReportMetric(milliseconds(took[len(took)-1]), "max-ms")
	b.ReportMetric(float64(len(took)), "messages")
}

// startMochi starts mochi with its own listener.
func startMochi(b *testing.B) (url string, end func()) {
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s := mochi.New(&mochi.Options{Logger: slog.New(slog.DiscardHandler)})
	if err := errors.Join(s.AddHook(new(allowAll), nil), s.AddListener(listeners.NewNet("tcp", socket)),
		s.Serve()); err != nil {
		b.Fatal(err)
	}
	return "tcp://" + socket.Addr().String(), func() { _ = s.Close() }
}

// allowAll is a hook that allows all connections and topics, like the hook in mochi itself.
type allowAll struct{ mochi.HookBase }

func (*allowAll) Provides(b byte) bool {
	return b == mochi.OnConnectAuthenticate || b == mochi.OnACLCheck
}
func (*allowAll) OnConnectAuthenticate(*mochi.Client, packets.Packet) bool { return true }
func (*allowAll) OnACLCheck(*mochi.Client, string, bool) bool              { return true }
