package mqtt_test

import (
	"bytes"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/eclipse/paho.mqtt.golang/packets"

	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
)

// evil returns the behaviour of a broker that answers one packet of the given kind with raw bytes and then closes the
// connection. If answer is empty, it closes the connection immediately. Afterwards it behaves like a normal broker.
func evil(kind byte, answer string) func(net.Conn, packets.ControlPacket) packets.ControlPacket {
	var done atomic.Bool
	isThat := func(p packets.ControlPacket) bool {
		_, connect := p.(*packets.ConnectPacket)
		_, subscribe := p.(*packets.SubscribePacket)
		return connect && kind == packets.Connect || subscribe && kind == packets.Subscribe
	}
	return func(conn net.Conn, p packets.ControlPacket) packets.ControlPacket {
		if !isThat(p) || done.Swap(true) {
			return usual(p)
		}
		if s, ok := p.(*packets.SubscribePacket); ok {
			answer = strings.ReplaceAll(answer, "ID", string([]byte{byte(s.MessageID >> 8), byte(s.MessageID)}))
		}
		_, _ = conn.Write([]byte(answer))
		if answer == "" {
			_ = conn.Close()
		}
		return nil
	}
}

// TestR14EvilBroker checks that a session survives any bytes from a broker, logs one line that describes the problem,
// and reconnects (R14).
func TestR14EvilBroker(t *testing.T) {
	for name, c := range map[string]struct {
		kind         byte // kind of the packet that receives the malformed answer
		answer, want string
	}{
		"256 MiB of SUBACK": {packets.Subscribe, "\x90\xff\xff\xff\x7f",
			"SUBACK of 268435460 bytes exceeds the limit of 131072 (MaxPacket)"},
		"256 MiB of CONNACK":   {packets.Connect, "\x20\xff\xff\xff\x7f", "CONNACK of 268435460 bytes"},
		"one byte more":        {packets.Subscribe, "\x90\xfd\xff\x07", "SUBACK of 131073 bytes"},
		"length without end":   {packets.Subscribe, "\x30\xff\xff\xff\xff\xff", "more than four bytes"},
		"code too many":        {packets.Subscribe, "\x90\x05ID\x00\x00\x00", "SUBACK with 3 codes for 2 filters"},
		"code too few":         {packets.Subscribe, "\x90\x03ID\x00", "SUBACK with 1 codes for 2 filters"},
		"SUBACK for another":   {packets.Subscribe, "\x90\x04\xff\xff\x00\x00", "SUBACK without a matching SUBSCRIBE"},
		"PUBACK for SUBSCRIBE": {packets.Subscribe, "\x40\x02ID", "PUBACK in response to SUBSCRIBE"},
		"not for clients":      {packets.Subscribe, "\x82\x06ID\x00\x01x\x00", "type 8 (SUBSCRIBE)"},
		"wrong flags":          {packets.Subscribe, "\x93\x04ID\x00\x00", "SUBACK with flags 0x3"},
		"PUBACK cut":           {packets.Subscribe, "\x40\x01\x00", "PUBACK with invalid remaining length 1"},
		"topic too long":       {packets.Subscribe, "\x30\x05\xff\xffabc", "PUBLISH needs 65535 bytes"},
		"QoS 2":                {packets.Subscribe, "\x34\x05\x00\x01x\x00\x01", "PUBLISH with QoS 2"},
		"QoS 3":                {packets.Subscribe, "\x36\x05\x00\x01x\x00\x01", "PUBLISH with QoS 3"},
		"CONNACK again":        {packets.Subscribe, "\x20\x02\x00\x00", "duplicate CONNACK"},
		"PUBLISH first":        {packets.Connect, "\x30\x03\x00\x01x", "PUBLISH before CONNACK"},
		"unknown code":         {packets.Connect, "\x20\x02\x00\x87", "CONNACK with unknown code 135"},
		"a web server": {packets.Connect, "HTTP/1.1 400 Bad Request\r\n\r\n",
			"did not answer CONNECT: invalid packet"},
		"hangs up":         {packets.Subscribe, "", "lost the connection to the broker at "},
		"hangs up at once": {packets.Connect, "", "did not answer CONNECT: "},
	} {
		t.Run(name, func(t *testing.T) {
			f := startFake(t, evil(c.kind, c.answer))
			logger, lines := logged()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			s := dialing(t, mqtt.Options{URL: f.url(), ClientID: "s", Logger: logger})
			s.Subscribe(mqtt.AtLeastOnce, "a", "b")
			if c.kind == packets.Subscribe {
				mqtttest.WantUp(t, s)
				if l := line(t, lines); !strings.Contains(l, "connected to the broker") {
					t.Errorf("logged %s", l)
				}
				mqtttest.WantDown(t, s)
			}
			mqtttest.WantUp(t, s)
			runtime.ReadMemStats(&after)
			if l := line(t, lines); !strings.Contains(l, c.want) || !strings.Contains(l, "level=WARN") ||
				!strings.Contains(l, "; retry in ") {
				t.Errorf("logged %s, want %q", l, c.want)
			}
			if l := line(t, lines); !strings.Contains(l, "connected to the broker") {
				t.Errorf("logged one line more: %s", l)
			}
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 16<<20 {
				t.Errorf("%d bytes were allocated", grown)
			}
		})
	}
}

// TestR14LargestPacket checks that packets of MaxPacket bytes pass in both directions, and that a packet that is one
// byte longer is rejected before it is sent (R14).
func TestR14LargestPacket(t *testing.T) {
	const most = 128 << 10
	// 4 bytes for the header and 2+1 for the topic
	largest := mqtt.Message{Topic: "x", Payload: make([]byte, most-4-2-1)}
	f := startFake(t, func(conn net.Conn, p packets.ControlPacket) packets.ControlPacket {
		m, ok := p.(*packets.PublishPacket)
		if !ok {
			return usual(p)
		}
		var sent bytes.Buffer
		_ = m.Write(&sent)
		if sent.Len() != most {
			t.Errorf("a packet of %d bytes", sent.Len())
		}
		return m
	})
	s := dial(t, mqtt.Options{URL: f.url(), ClientID: "s"})
	mqtttest.Publish(t, s, largest)
	if m := mqtttest.Received(t, s); len(m.Payload) != len(largest.Payload) {
		t.Errorf("got %d bytes", len(m.Payload))
	}
	for _, m := range []mqtt.Message{
		{Topic: "x", Payload: make([]byte, len(largest.Payload)+1)},
		{Topic: "x", Payload: make([]byte, len(largest.Payload)-1), QoS: mqtt.AtLeastOnce},
	} {
		if err := s.Publish(m); err == nil || !strings.Contains(err.Error(), "makes a packet of 13107") {
			t.Errorf("QoS %d: %v", m.QoS, err)
		}
	}
}

// TestR14OversizedMessages checks that messages above MaxPacket, retained or live, do not end the link (R14). The
// broker sends more of them than may be unacknowledged (max_inflight_messages of Mosquitto: 20). The next normal
// message must arrive.
func TestR14OversizedMessages(t *testing.T) {
	const n, payload = 50, 140_000
	eachBrokerOf(t, 1<<20, func(t *testing.T, b testBroker) {
		camera := dial(t, mqtt.Options{URL: b.url(), ClientID: "camera", MaxPacket: 1 << 20})
		picture := mqtt.Message{Topic: "home/camera", Payload: make([]byte, payload), QoS: mqtt.AtLeastOnce}
		retained := picture
		retained.Retained = true
		mqtttest.Publish(t, camera, retained)
		mqtttest.SyncWithBroker(t, camera)
		seen := make(chan mqtt.ObservedMessage, 2*n+2)
		logger, lines := logged()
		s := dial(t, mqtt.Options{URL: b.url(), ClientID: "s", Logger: logger,
			ObserveMessage: func(x mqtt.ObservedMessage) {
				if x.IsIncoming && (x.Topic == "home/camera" || x.IsDropped) {
					seen <- x
				}
			}})
		s.Subscribe(mqtt.AtLeastOnce, "home/+")
		mqtttest.SyncWithBroker(t, s)
		for i := range n {
			mqtttest.Publish(t, camera, picture)
			hall := fmt.Sprint(i)
			mqtttest.Publish(t, camera, mqtt.Message{Topic: "home/hall", Payload: []byte(hall), QoS: mqtt.AtLeastOnce})
			if m := mqtttest.Received(t, s); m.Topic != "home/hall" || string(m.Payload) != hall {
				t.Fatalf("got %s %.20q, want home/hall %s", m.Topic, m.Payload, hall)
			}
		}
		want := mqtt.ObservedMessage{IsIncoming: true, Topic: "home/camera", PayloadBytes: payload, IsDropped: true,
			ExceededSizeLimit:   128 << 10,
			OversizedPacketSize: payload + 1 + 3 + 2 + len("home/camera") + 2}
		for i := range n + 1 {
			if got := <-seen; got != want {
				t.Fatalf("message %d: %+v, want %+v", i, got, want)
			}
		}
		for _, want := range []string{"connected to the broker", `msg="oversized message dropped" topic=home/camera`} {
			if l := line(t, lines); !strings.Contains(l, want) {
				t.Errorf("logged %s, want %q", l, want)
			}
		}
		if len(seen) > 0 || len(lines) > 0 {
			t.Errorf("%d messages more, %d lines more", len(seen), len(lines))
		}
	})
}
