package conformance

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
)

// testPoison publishes a message for which the broker closes the connection. The session must reconnect once and must
// not send this message again. Later messages must arrive.
func testPoison(t *testing.T, s subject) {
	b := s.start(t, needs{})
	for i, qos := range []mqtt.QoS{mqtt.AtMostOnce, mqtt.AtLeastOnce} {
		o := b.as(anyOne(i))
		sent := make(chan mqtt.ObservedMessage, 100)
		o.MaxPacket = 512 << 10
		o.ObserveMessage = func(x mqtt.ObservedMessage) {
			if !x.IsIncoming && x.Topic == "too/large" {
				sent <- x
			}
		}
		c := mqtttest.Dial(t, o)
		mqtttest.Publish(t, c, mqtt.Message{Topic: "too/large", Payload: make([]byte, 256<<10), QoS: qos})
		refused := s.maxPacket > 0
		if refused {
			mqtttest.WantDown(t, c)
			mqtttest.WantUp(t, c)
		}
		// enough time to see a second disconnect, which would happen if the session sent the message again
		for range 20 {
			mqtttest.SyncWithBroker(t, c)
		}
		if x := <-sent; qos == mqtt.AtLeastOnce && x.IsDropped != refused {
			t.Errorf("QoS %d: %+v, want dropped %v", qos, x, refused)
		}
		if len(sent) > 0 {
			t.Errorf("QoS %d: sent %d times more", qos, len(sent))
		}
	}
	if !t.Failed() {
		s.saw(t, refuses, yesIf(s.maxPacket > 0))
	}
}

// testMalformed sends malformed packets as an unknown user and as known users. The broker must close the connection of
// each sender, and other clients must be unaffected.
func testMalformed(t *testing.T, s subject) {
	b := s.start(t, needs{})
	victim := mqtttest.Dial(t, b.as(anyOne(0)))
	mqtttest.SyncWithBroker(t, victim)
	var open []string
	for i, c := range malformed {
		if c.claim && s.maxPacket == 0 {
			continue // This broker accepts any packet size and waits for the remaining bytes.
		}
		if !b.closes(t, anyOne(1+i), c) {
			open = append(open, c.name)
		}
		mqtttest.Publish(t, victim, mqtt.Message{Topic: fmt.Sprint("after/", i)})
		mqtttest.SyncWithBroker(t, victim)
	}
	if len(open) == 0 {
		s.saw(t, hangsUp, yes)
	} else {
		s.saw(t, hangsUp, "not after: "+strings.Join(open, "; "))
	}
}

type frame struct {
	name         string
	known, claim bool
	bytes        string
}

var malformed = []frame{
	{"HTTP", false, false, "GET / HTTP/1.1\r\nHost: broker\r\n\r\n"},
	{"zeros", false, false, strings.Repeat("\x00", 100)},
	{"PUBLISH before CONNECT", false, false, "\x30\x05\x00\x01xhi"},
	{"CONNECT with a length that does not end", false, false, "\x10\xff\xff\xff\xff\xff"},
	{"CONNECT of another protocol", false, false, "\x10\x0e\x00\x04XXTT\x04\x02\x00\x3c\x00\x02ab"},
	{"CONNECT with a string beyond its end", false, false, "\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\xff\xff"},
	{"CONNECT of 256 MiB", false, true, "\x10\xff\xff\xff\x7f\x00\x04MQTT"},
	{"second CONNECT", true, false, "\x10\x0e\x00\x04MQTT\x04\x02\x00\x3c\x00\x02ab"},
	{"PUBLISH with QoS 3", true, false, "\x36\x07\x00\x01x\x00\x01hi"},
	{"PUBLISH to a wildcard", true, false, "\x30\x05\x00\x03x/#"},
	{"PUBLISH without a topic", true, false, "\x30\x02\x00\x00"},
	{"PUBLISH with a topic beyond its end", true, false, "\x30\x03\x00\xffx"},
	{"SUBSCRIBE to nothing", true, false, "\x82\x02\x00\x01"},
	{"SUBSCRIBE with the flags of another", true, false, "\x80\x06\x00\x01\x00\x01x\x00"},
	{"SUBSCRIBE with QoS 3", true, false, "\x82\x06\x00\x01\x00\x01x\x03"},
	{"SUBSCRIBE to a topic that is not UTF-8", true, false, "\x82\x08\x00\x01\x00\x03\xff\xfe\xfd\x00"},
	{"reserved packet", true, false, "\xf0\x00"},
	{"packet for clients", true, false, "\x20\x02\x00\x00"},
}

// atOnce is the time within which a broker must close the connection after a malformed packet. It is shorter than the
// embedded broker's timeout for a CONNECT.
const atOnce = 8 * time.Second

// closes sends a frame as the given user and reports whether the broker closes the connection.
func (b *broker) closes(t *testing.T, user string, f frame) bool {
	t.Helper()
	var conn brokers.RawClient
	if f.known {
		conn = b.connect(t, user, atOnce)
	} else {
		conn = b.reach(t, b.as(user), atOnce)
	}
	if _, err := io.WriteString(conn, f.bytes); err != nil {
		t.Fatalf("%s: %v", f.name, err)
	}
	return conn.Closed()
}
