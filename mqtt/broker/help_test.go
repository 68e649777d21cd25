package broker_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/eclipse/paho.mqtt.golang/packets"
	"go.uber.org/goleak"

	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/broker"
)

// patience is the maximum time that a test waits for an event; tests normally take much less.
const patience = 10 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t testing.TB, o broker.Options) *broker.Server {
	t.Helper()
	s, err := broker.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// rawPatience is shorter than the broker's timeouts for CONNECT and for a client that does not read.
const rawPatience = patience / 2

func rawDial(t testing.TB, s *broker.Server) brokers.RawClient {
	t.Helper()
	return rawDialURL(t, s.URL())
}

func rawDialURL(t testing.TB, url string) brokers.RawClient {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "tcp://"))
	if err != nil {
		t.Fatal(err)
	}
	return brokers.NewRaw(t, conn, rawPatience)
}

// connect logs in a client without a user name.
func connect(c brokers.RawClient, id string) { c.Connect(mqtt.Options{ClientID: id}) }

// subscribe subscribes to a filter and returns the code in the SUBACK.
func subscribe(c brokers.RawClient, id uint16, qos byte, filter string) byte {
	c.Subscribe(id, qos, filter)
	return brokers.Receive[*packets.SubackPacket](c).ReturnCodes[0]
}

func wantClosed(t testing.TB, c brokers.RawClient) {
	t.Helper()
	if !c.Closed() {
		t.Fatal("the connection is still open")
	}
}

type lineWriter chan string

func (w lineWriter) Write(p []byte) (int, error) {
	w <- string(p)
	return len(p), nil
}

// logged returns the next log line.
func logged(t *testing.T, lines <-chan string) string {
	t.Helper()
	select {
	case line := <-lines:
		return line
	case <-time.After(patience):
		t.Fatal("nothing was logged in time")
		return ""
	}
}
