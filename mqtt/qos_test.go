package mqtt_test

import (
	"fmt"
	"net"
	"testing"

	"github.com/eclipse/paho.mqtt.golang/packets"

	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
)

// TestLeastQoS checks that Options.MinQoS is the minimum quality of service of messages, subscriptions and the will.
func TestLeastQoS(t *testing.T) {
	for _, least := range []mqtt.QoS{mqtt.AtMostOnce, mqtt.AtLeastOnce} {
		seen := make(chan string, 8)
		f := startFake(t, func(_ net.Conn, p packets.ControlPacket) packets.ControlPacket {
			switch p := p.(type) {
			case *packets.ConnectPacket:
				seen <- fmt.Sprint("will ", p.WillQos)
			case *packets.SubscribePacket:
				seen <- fmt.Sprint("subscribe ", p.Qoss[0])
			case *packets.PublishPacket:
				seen <- fmt.Sprint(p.TopicName, " ", p.Qos)
			}
			return usual(p)
		})
		s := mqtttest.Dial(t, mqtt.Options{URL: f.url(), ClientID: "c", MinQoS: least,
			Will: func() mqtt.Message { return mqtt.Message{Topic: "w", Payload: []byte("x")} }})
		s.Subscribe(mqtt.AtMostOnce, "x")
		mqtttest.Publish(t, s, mqtt.Message{Topic: "a"})
		mqtttest.Publish(t, s, mqtt.Message{Topic: "b", QoS: mqtt.AtLeastOnce})
		for _, want := range []string{fmt.Sprint("will ", least), fmt.Sprint("subscribe ", least),
			fmt.Sprint("a ", least), "b 1"} {
			if got := <-seen; got != want {
				t.Errorf("least %d: %q, want %q", least, got, want)
			}
		}
	}
	if err := (mqtt.Options{URL: "tcp://127.0.0.1:1", ClientID: "c", MinQoS: 2}).Validate(); err == nil {
		t.Error("QoS 2 is taken")
	}
}
