package sources

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
)

// TestOversizedTroubles checks that an oversized message is counted for each input whose topic matches. Each topic must
// be reported once, for an hour after its last oversized message.
func TestOversizedTroubles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := envAt(t.TempDir())
		var observe func(mqtt.ObservedMessage)
		b := memory.New(memory.Options{})
		e.ConnectBroker = func(o func(mqtt.ObservedMessage)) (mqtt.Conn, error) {
			observe = o
			return b.Session("device-data", nil, nil), nil
		}
		s := started(t, data.Config{Source: data.SourceMQTT, ColumnByInput: map[string]string{"temp": "home/+ t",
			"hum":  "home/+ h",
			"door": "yard/door"}}, e)
		synctest.Wait()
		drop := func(topic string, size int) {
			observe(mqtt.ObservedMessage{IsIncoming: true, Topic: topic, IsDropped: true, ExceededSizeLimit: 131_072,
				OversizedPacketSize: size})
		}
		drop("home/camera", 140_017)
		drop("home/camera", 133_000)
		const camera = `oversized: topic "home/camera": dropped a message of 140017 bytes, which exceeds the limit ` +
			`of 131072; ` +
			`use narrower topics in data.columns, or send smaller messages`
		wantTroubles(t, s, nil, camera)
		const problem = "the message has 133000 bytes, which exceeds the limit of 131072"
		for _, c := range s.recorder.stats.columnReports() {
			if want := map[string]uint64{"temp": 2, "hum": 2}[c.Name]; c.Unused[grid.ReasonNoRoom] != want ||
				want > 0 && (c.LastUnusedWhere != "home/camera" || c.LastUnusedProblem != problem) {
				t.Errorf("%+v, want %d dropped", c, want)
			}
		}
		pass(30 * time.Minute)
		drop("home/\xff\x00", 200_000)
		wantTroubles(t, s, nil, camera, `oversized: topic "home/\xff\x00": dropped a message of 200000 bytes`)
		pass(30 * time.Minute)
		wantTroubles(t, s, nil, `oversized: topic "home/\xff\x00": dropped a message of 200000 bytes`)
		for i := range 1000 {
			drop(fmt.Sprint("home/", i, strings.Repeat("x\xff", 30_000)), 200_000)
		}
		troubles := s.recorder.stats.currentTroubles(nil)
		if len(troubles) != maxOversizedTopics {
			t.Errorf("%d troubles", len(troubles))
		}
		for _, trouble := range troubles {
			if len(trouble.Text) > 1000 || !utf8.ValidString(trouble.Text) {
				t.Errorf("trouble %q", trouble.Text)
			}
		}
		pass(time.Hour)
		wantTroubles(t, s, nil)
		mustClose(t, s)
	})
}

// TestOversizedWithMosquitto checks that pictures, published retained and between readings, do not disturb a source.
// All readings must be used, the connection must stay open, and the topic of the pictures must be reported.
func TestOversizedWithMosquitto(t *testing.T) {
	for qos := range mqtt.QoS(2) {
		t.Run(fmt.Sprint("QoS ", qos), func(t *testing.T) {
			m := brokers.NewMosquitto(t, []byte(brokers.AnonymousListenerConf))
			m.Start(t)
			home := mqtttest.Dial(t, mqtt.Options{URL: "tcp://" + m.Address, ClientID: "home", MaxPacket: 1 << 20})
			picture := mqtt.Message{Topic: "home/camera", Payload: make([]byte, 140_000), QoS: mqtt.AtLeastOnce}
			retained := picture
			retained.Retained = true
			mqtttest.Publish(t, home, retained)
			mqtttest.SyncWithBroker(t, home)
			e := envAt(t.TempDir())
			var dials atomic.Int32
			e.ConnectBroker = func(observe func(mqtt.ObservedMessage)) (mqtt.Conn, error) {
				return mqtt.Dial(context.Background(), mqtt.Options{URL: "tcp://" + m.Address,
					ClientID: "device-data", MinQoS: qos, MaxReconnectDelay: 20 * time.Millisecond,
					ObserveMessage: observe,
					Will:           func() mqtt.Message { dials.Add(1); return mqtt.Message{} }})
			}
			s := started(t, data.Config{Source: data.SourceMQTT, TimeColumn: "ts",
				ColumnByInput: map[string]string{"temp": "home/+ temperature",
					"hum": "home/+ humidity"}}, e)
			counts := func() (used, dropped uint64) {
				for _, c := range s.recorder.stats.columnReports() {
					used, dropped = used+c.Used, dropped+c.Unused[grid.ReasonNoRoom]
				}
				return used, dropped
			}
			testkit.Until(t, "the retained picture is counted at both inputs", func() bool {
				_, dropped := counts()
				return dropped == 2
			})
			const readings = 60
			begin := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
			for i := range readings {
				if i%6 == 3 {
					mqtttest.Publish(t, home, picture)
				}
				at := begin.Add(time.Duration(i) * time.Second).Format(time.RFC3339)
				mqtttest.Publish(t, home, mqtt.Message{Topic: "home/hall", QoS: mqtt.AtLeastOnce,
					Payload: fmt.Appendf(nil, `{"ts":%q,"temperature":20.1,"humidity":50}`, at)})
				mqtttest.SyncWithBroker(t, home)
			}
			testkit.Until(t, "all readings are used", func() bool {
				used, _ := counts()
				return used == 2*readings
			})
			if _, dropped := counts(); dropped != 2+2*readings/6 || dials.Load() != 1 {
				t.Errorf("%d values dropped, %d connections", dropped, dials.Load())
			}
			size := 140_017 // length of payload, topic and framing in bytes
			if qos == mqtt.AtLeastOnce {
				size += 2
			}
			wantTroubles(t, s, nil, fmt.Sprintf(`oversized: topic "home/camera": dropped a message of %d bytes`, size))
			mustClose(t, s)
		})
	}
}
