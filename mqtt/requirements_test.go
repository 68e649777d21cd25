package mqtt_test

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eclipse/paho.mqtt.golang/packets"

	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
)

// Measurements of paho and of brokers led to requirements R1 to R18. The tests named here verify those without a test
// of their own.
//
//	R1   handlers only queue, bounded         TestR1FloodIsBounded, TestBlockedConsumerHurtsNobodyElse,
//	                                          TestBlockedConsumerKeepsPinging
//	R2   a token is no delivery               TestNoPoisonLoop: lost without PUBACK counts as dropped
//	R3   publishing while down is an error    TestPublishWhileDown, TestUnreachable
//	R4   a write timeout: sent at most once   TestR4AtMostOnceAfterAWriteTimeout, TestBusy
//	R5   SUBACK 0x80 is detected              TestSubscriptionRefused
//	R6   subscribed again after each connect  TestReconnectSubscribesAgain, TestSubscribeWhileDown
//	R7   messages ahead of SUBSCRIBE          TestR7MessageBeforeSubscribe
//	R8   reconnects are spread, interruptible TestR8SessionsComeBackSpreadOut, TestHerd,
//	                                          TestWaits, TestCloseInterrupts
//	R9   never MQTT 3.1                       TestRefusedConnect
//	R10  all stores are bounded               TestR10UnacknowledgedIsBounded, TestBusy
//	R11  a refused message is not sent again  TestR11RefusedMessage, TestNoPoisonLoop
//	R12  silently refused messages            TestR12SelfTest; otherwise the sender requests an answer
//	R13  keepalive on a slow link             TestR13SlowUpload, TestR13SlowDownload, TestR13ShortQueue,
//	                                          TestR13ByRate, TestR13SlowOversized;
//	                                          package transfer, TestTransfersOnSlowLinks;
//	                                          package e2e, TestSlowLink
//	R14  malformed and huge packets           TestR14EvilBroker, TestR14LargestPacket, TestGuard,
//	                                          TestGuardAllocatesNothing, FuzzGuard; TestR14OversizedMessages,
//	                                          TestOversizedIsDiscarded, TestOversizedAllocatesNothing
//	R15  never QoS 2                          package conformance, connections/invalid, TestGuard
//	R16  a payload has one owner              package conformance, connections/ownership
//	R17  DISCONNECT drops the will            TestR17GoodbyeComesLast; overlapping filters: package conformance,
//	                                          connections/overlap
//	R18  a will for each attempt              TestWillOnAbruptDeath; package conformance, presence

// TestR1FloodIsBounded checks that a flood of messages whose events are not read starts no goroutines, and occupies at
// most the mailbox's limit in bytes (R1).
func TestR1FloodIsBounded(t *testing.T) {
	const n, payload, bound = 100_000, 100, 1 << 20
	flood := new(packets.PublishPacket)
	flood.MessageType, flood.TopicName, flood.Payload = packets.Publish, "x", make([]byte, payload)
	f := startFake(t, func(conn net.Conn, p packets.ControlPacket) packets.ControlPacket {
		if _, ok := p.(*packets.SubscribePacket); ok {
			_ = usual(p).Write(conn)
			for range n {
				_ = flood.Write(conn)
			}
			return nil
		}
		return usual(p)
	})
	before := runtime.NumGoroutine()
	var most atomic.Int64
	counts := newCounter()
	s := dial(t, mqtt.Options{URL: f.url(), ClientID: "s", MailboxBytes: bound, MailboxMessages: n,
		ObserveMessage: func(x mqtt.ObservedMessage) {
			counts.observe(x)
			most.Store(max(most.Load(), int64(runtime.NumGoroutine())))
		}})
	s.Subscribe(mqtt.AtMostOnce, "x")
	eventually(t, "all messages are seen", func() bool { return counts.get(incoming) == n })
	if more := int(most.Load()) - before; more > n/500 { // allow for goroutines of other tests, which may start and end
		t.Errorf("%d goroutines more", more)
	}
	if kept := counts.get(incoming) - counts.get(incomingDropped); kept == 0 || kept*payload > bound {
		t.Errorf("%d messages of %d bytes kept in %d", kept, payload, bound)
	}
}

// TestR4AtMostOnceAfterAWriteTimeout checks that messages are not sent again after a reconnect, even if it is unknown
// whether the broker received them. Each message must arrive at most once (R4).
func TestR4AtMostOnceAfterAWriteTimeout(t *testing.T) {
	t.Parallel()
	resume := make(chan struct{})
	var once sync.Once
	var mu sync.Mutex
	seen := make(map[string]int)
	f := startFake(t, func(_ net.Conn, p packets.ControlPacket) packets.ControlPacket {
		if m, ok := p.(*packets.PublishPacket); ok {
			once.Do(func() { <-resume }) // the broker stops reading at the first message
			mu.Lock()
			seen[m.TopicName]++
			mu.Unlock()
		}
		return usual(p)
	})
	counts := newCounter()
	s := dial(t, mqtt.Options{URL: f.url(), ClientID: "s", WriteTimeout: 3 * time.Second,
		ObserveMessage: counts.observe})
	const n = 60 // 3.6 MiB, more than the kernel buffers
	for i := range n {
		mqtttest.Publish(t, s, mqtt.Message{Topic: fmt.Sprint(i), Payload: make([]byte, 60<<10), QoS: mqtt.QoS(i % 2)})
	}
	mqtttest.WantDown(t, s)
	close(resume)
	mqtttest.WantUp(t, s)
	mqtttest.Publish(t, s, mqtt.Message{Topic: "last", QoS: mqtt.AtLeastOnce})
	eventually(t, "every message has a fate", func() bool { return counts.get(outgoing) == n+1 })
	if dropped := counts.get(outgoingDropped); dropped == 0 || dropped == n+1 {
		t.Errorf("%d of %d dropped, want some but not the last", dropped, n+1)
	}
	mu.Lock()
	defer mu.Unlock()
	for topic, times := range seen {
		if times != 1 {
			t.Errorf("%s came %d times", topic, times)
		}
	}
	if seen["last"] != 1 {
		t.Error("the message after the reconnect did not come")
	}
}

// TestR7MessageBeforeSubscribe checks that messages which arrive before the first SUBSCRIBE are received and
// acknowledged (R7).
func TestR7MessageBeforeSubscribe(t *testing.T) {
	acked := make(chan uint16, 1)
	f := startFake(t, func(conn net.Conn, p packets.ControlPacket) packets.ControlPacket {
		switch p := p.(type) {
		case *packets.ConnectPacket:
			_ = usual(p).Write(conn)
			m := packets.NewControlPacket(packets.Publish).(*packets.PublishPacket)
			m.Qos, m.MessageID, m.TopicName = 1, 7, "early"
			return m
		case *packets.PubackPacket:
			acked <- p.MessageID
			return nil
		}
		return usual(p)
	})
	s := dialing(t, mqtt.Options{URL: f.url(), ClientID: "s"})
	early := false
	for range 2 { // receive two events: the message and LinkUp, in either order
		if r, ok := mqtttest.Event(t, s).(mqtt.MessageReceived); ok {
			early = r.Topic == "early"
		}
	}
	if !early {
		t.Error("not received")
	}
	select {
	case id := <-acked:
		if id != 7 {
			t.Errorf("acknowledged %d", id)
		}
	case <-time.After(patience):
		t.Error("not acknowledged")
	}
}

// TestR10UnacknowledgedIsBounded checks that a broker that never acknowledges receives only a limited window of
// messages. Further messages fill the outbox, which is bounded (R10).
func TestR10UnacknowledgedIsBounded(t *testing.T) {
	t.Parallel()
	const most = 8 + 2 // the window of unacknowledged messages, plus one message in each of the two sending goroutines
	var sent atomic.Int64
	f := startFake(t, func(_ net.Conn, p packets.ControlPacket) packets.ControlPacket {
		if _, ok := p.(*packets.PublishPacket); ok {
			sent.Add(1)
			return nil
		}
		return usual(p)
	})
	s := dial(t, mqtt.Options{URL: f.url(), ClientID: "s", OutboxMessages: 5})
	accepted := 0
	eventually(t, "the window and the outbox are full", func() bool {
		if accepted < 1000 && s.Publish(mqtt.Message{Topic: "x", QoS: mqtt.AtLeastOnce}) == nil {
			accepted++
		}
		return accepted == most+5 || accepted == 1000
	})
	eventually(t, "the window has arrived", func() bool { return sent.Load() >= most })
	if err := s.Publish(mqtt.Message{Topic: "x", QoS: mqtt.AtLeastOnce}); !errors.Is(err, mqtt.ErrOutboxFull) ||
		accepted != most+5 || sent.Load() != most {
		t.Errorf("%d accepted, %d sent, then %v; want %d sent and ErrBusy", accepted, sent.Load(), err, most)
	}
}

// TestR11RefusedMessage checks that a message which makes the broker disconnect ends only one link, is named in the log
// line, and is not sent again (R11).
func TestR11RefusedMessage(t *testing.T) {
	eachBrokerOf(t, 16<<10, func(t *testing.T, b testBroker) {
		for _, qos := range []mqtt.QoS{mqtt.AtMostOnce, mqtt.AtLeastOnce} {
			t.Run(fmt.Sprintf("QoS %d", qos), func(t *testing.T) {
				logger, lines := logged()
				counts := newCounter()
				s := dial(t, mqtt.Options{URL: b.url(), ClientID: "s", Logger: logger, ObserveMessage: counts.observe})
				mqtttest.SyncWithBroker(t, s)
				mqtttest.Publish(t, s, mqtt.Message{Topic: "too/large", Payload: make([]byte, 60<<10), QoS: qos})
				mqtttest.WantDown(t, s)
				mqtttest.WantUp(t, s)
				for range 3 { // mqtttest reports other events in between as failures
					mqtttest.SyncWithBroker(t, s)
				}
				line(t, lines) // read the log line "connected"
				if l := line(t, lines); !strings.Contains(l, "lost the connection to the broker at ") ||
					!strings.Contains(l, "not confirmed by the broker: message of 61440 bytes to too/large") {
					t.Errorf("logged %s", l)
				}
				if qos == mqtt.AtLeastOnce {
					eventually(t, "its loss is told", func() bool { return counts.get(outgoingDropped) == 1 })
				}
			})
		}
	})
}

// TestR17GoodbyeComesLast checks that Close sends queued messages, such as a presence message, and then DISCONNECT.
// Without DISCONNECT the broker would publish the will (R17).
func TestR17GoodbyeComesLast(t *testing.T) {
	packetsSeen := make(chan string, 100)
	f := startFake(t, func(_ net.Conn, p packets.ControlPacket) packets.ControlPacket {
		switch p := p.(type) {
		case *packets.PublishPacket:
			packetsSeen <- "PUBLISH " + p.TopicName
		case *packets.DisconnectPacket:
			packetsSeen <- "DISCONNECT"
		}
		return usual(p)
	})
	s := dial(t, mqtt.Options{URL: f.url(), ClientID: "s",
		Will: func() mqtt.Message { return mqtt.Message{Topic: "lost"} }})
	mqtttest.Publish(t, s, mqtt.Message{Topic: "last words"})
	mqtttest.Publish(t, s, mqtt.Message{Topic: "offline", QoS: mqtt.AtLeastOnce})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"PUBLISH last words", "PUBLISH offline", "DISCONNECT"} {
		select {
		case got := <-packetsSeen:
			if got != want {
				t.Errorf("sent %s, want %s", got, want)
			}
		case <-time.After(patience):
			t.Fatalf("no %s", want)
		}
	}
}
