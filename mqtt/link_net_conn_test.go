package mqtt_test

import (
	"bytes"
	"fmt"
	"net"
	"testing"

	"github.com/eclipse/paho.mqtt.golang/packets"

	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
)

// TestMessagesOfAnyLength checks that messages of any length bypass paho unchanged in both directions.
func TestMessagesOfAnyLength(t *testing.T) {
	f := startFake(t, func(_ net.Conn, p packets.ControlPacket) packets.ControlPacket {
		if m, ok := p.(*packets.PublishPacket); ok {
			return m
		}
		return usual(p)
	})
	s := dial(t, mqtt.Options{URL: f.url(), ClientID: "s"})
	for _, n := range []int{0, 1, 126, 127, 128, 4095, 4096, 4097, 16_383, 16_384, 100_000} {
		for _, retained := range []bool{false, true} {
			want := mqtt.Message{Topic: fmt.Sprint("t/", n), Payload: make([]byte, n), Retained: retained}
			for i := range want.Payload {
				want.Payload[i] = byte(i * 7)
			}
			mqtttest.Publish(t, s, want)
			got := mqtttest.Received(t, s)
			if got.Topic != want.Topic || got.Retained != retained || !bytes.Equal(got.Payload, want.Payload) {
				t.Errorf("%d bytes, retained %v: got %d to %q, retained %v", n, retained, len(got.Payload), got.Topic,
					got.Retained)
			}
		}
	}
}

// TestNothingIsOvertaken checks that packets that paho writes and messages that the link writes itself arrive in the
// order of the calls.
func TestNothingIsOvertaken(t *testing.T) {
	const n = 300
	seen := make(chan string, 4*n)
	f := startFake(t, func(_ net.Conn, p packets.ControlPacket) packets.ControlPacket {
		switch p := p.(type) {
		case *packets.SubscribePacket:
			seen <- "subscribe " + p.Topics[0]
		case *packets.UnsubscribePacket:
			seen <- "unsubscribe " + p.Topics[0]
			ack := packets.NewControlPacket(packets.Unsuback).(*packets.UnsubackPacket)
			ack.MessageID = p.MessageID
			return ack
		case *packets.PublishPacket:
			seen <- fmt.Sprint("publish ", p.TopicName, " ", p.Qos)
		}
		return usual(p)
	})
	s := dial(t, mqtt.Options{URL: f.url(), ClientID: "s"})
	for k := range n {
		name := fmt.Sprint(k)
		s.Subscribe(mqtt.AtMostOnce, name)
		mqtttest.Publish(t, s, mqtt.Message{Topic: name})
		s.Unsubscribe(name)
		mqtttest.Publish(t, s, mqtt.Message{Topic: name, QoS: mqtt.AtLeastOnce})
		for _, want := range []string{"subscribe " + name, "publish " + name + " 0", "unsubscribe " + name,
			"publish " + name + " 1"} {
			if got := <-seen; got != want {
				t.Fatalf("%q, want %q", got, want)
			}
		}
	}
}
