package mqtt_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/mqtt/broker"
)

// testBroker is a broker that can be stopped and restarted at the same address.
type testBroker interface {
	url() string
	start(t *testing.T)
	stop()
}

// eachBroker runs a test with the embedded broker and with Mosquitto.
func eachBroker(t *testing.T, test func(t *testing.T, b testBroker)) {
	eachBrokerOf(t, 128<<10, test)
}

// eachBrokerOf runs a test with the embedded broker and with Mosquitto. Both brokers disconnect a client that sends a
// packet of more than maxPacket bytes.
func eachBrokerOf(t *testing.T, maxPacket int, test func(t *testing.T, b testBroker)) {
	for name, make := range map[string]func(*testing.T, int) testBroker{
		"embedded":  newEmbedded,
		"mosquitto": newMosquitto,
	} {
		t.Run(name, func(t *testing.T) {
			b := make(t, maxPacket)
			b.start(t)
			t.Cleanup(b.stop)
			test(t, b)
		})
	}
}

type embedded struct {
	options     broker.Options
	server      *broker.Server
	addressUsed bool // whether a test has already used the address
}

// newEmbedded returns an embedded broker at a port that stays free while the broker is stopped.
func newEmbedded(t *testing.T, maxPacket int) testBroker {
	t.Helper()
	return &embedded{options: broker.Options{Listen: brokers.FreeAddress(t), MaxPacket: maxPacket}}
}

func (b *embedded) url() string {
	b.addressUsed = true
	return "tcp://" + b.options.Listen
}

func (b *embedded) start(t *testing.T) {
	t.Helper()
	if b.server == nil && !b.addressUsed {
		b.options.Listen = "127.0.0.1:0" // another process may have taken the port in the meantime
	}
	server, err := broker.Start(b.options)
	if err != nil {
		t.Fatal(err)
	}
	b.server = server
	b.options.Listen = strings.TrimPrefix(server.URL(), "tcp://")
}

func (b *embedded) stop() { _ = b.server.Close() }

type mosquitto struct{ *brokers.Mosquitto }

func newMosquitto(t *testing.T, maxPacket int) testBroker {
	t.Helper()
	return mosquittoWith(t, fmt.Sprintf("max_packet_size %d\n", maxPacket))
}

// mosquittoWith returns Mosquitto with additional configuration lines. Its base configuration allows anonymous access
// to all topics.
func mosquittoWith(t *testing.T, lines string) testBroker {
	t.Helper()
	return mosquitto{brokers.NewMosquitto(t, []byte(brokers.AnonymousListenerConf+lines))}
}

func (m mosquitto) url() string { return "tcp://" + m.Address }

func (m mosquitto) start(t *testing.T) {
	t.Helper()
	m.Start(t)
}

func (m mosquitto) stop() { m.Kill() }
