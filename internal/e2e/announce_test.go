package e2e

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
)

// TestAnnouncements checks with Mosquitto how a device and its forecasts appear in Home Assistant. The device must
// become unavailable when agentd is killed, and available again after the next start. It must disappear when the
// announcements are configured for another system or disabled.
func TestAnnouncements(t *testing.T) {
	t.Parallel()
	site := brokers.OpenMosquitto(t)
	f := newFederation(t, site)
	f.lead(t, f.AddAgent(t, "one", plane(60)),
		`{participants: 1, quorum: 1, rounds: 2, deadline: 20s, `+
			`gather: {target: 1, minimum: 1, within: 20s, spread: 10ms}}`)
	lead := f.Daemon(t, "coordinator", "coordinator")
	display := mqtttest.Dial(t, mqtt.Options{URL: site, ClientID: "display"})
	display.Subscribe(mqtt.AtLeastOnce, "homeassistant/#", "site/#", "te/#", "spBv1.0/#")
	predict := []string{"--set", "predict.keep=1", "--set", "predict.refresh=0s", "--set", "predict.every=1s", "--set",
		"predict.publish=site/forecast", "--set", "predict.broker.url=" + site}
	announcing := func(system string) []string {
		return slices.Concat(predict, []string{"--set", "predict.announce=" + system})
	}
	const discovery = "homeassistant/device/fedmesh_e2e-one/"

	one := f.Daemon(t, "agentd", "one", announcing("homeassistant")...)
	lead.Await(t, "run finished version=2")
	one.Await(t, "version=2 task=plane pinned=false")
	wantDiscovery(t, awaitMessage(t, display, discovery+"forecast_y/config", `"forecast"`))
	var state struct{ Forecast, Residual *float64 }
	if err := json.Unmarshal(awaitMessage(t, display, "site/forecast/one/state", `"model"`), &state); err != nil {
		t.Fatal(err)
	}
	if state.Forecast == nil || state.Residual == nil {
		t.Errorf("the state is %+v", state)
	}
	put(t, f.Path("one.csv"), os.O_APPEND, strings.TrimPrefix(plane(61), plane(60)))
	awaitMessage(t, display, "site/forecast/one/state", `"model"`)
	mqtttest.Publish(t, display, mqtt.Message{Topic: "homeassistant/status", Payload: []byte("online")})
	awaitMessage(t, display, discovery+"health/config", `"device"`)
	awaitMessage(t, display, "site/forecast/one/availability", "online")
	one.Kill()
	awaitMessage(t, display, "site/forecast/one/availability", "offline")

	one = f.Daemon(t, "agentd", "one", announcing("homeassistant")...)
	awaitMessage(t, display, "site/forecast/one/availability", "online")
	one.Stop(t, syscall.SIGTERM, 0)
	awaitMessage(t, display, "site/forecast/one/availability", "offline")
	if kept := retained(t, site); kept[discovery+"forecast_y/config"] == nil {
		t.Error("the forecast disappears when agentd stops")
	}

	const service = "te/device/main/service/fedmesh_e2e-one"
	one = f.Daemon(t, "agentd", "one", announcing("thin-edge")...)
	awaitMessage(t, display, discovery+"forecast_y/config", "")
	awaitMessage(t, display, service+"/status/health", `"status":"up"`)
	one.Kill()
	awaitMessage(t, display, service+"/status/health", `"status":"down"`)

	one = f.Daemon(t, "agentd", "one", announcing("sparkplug")...)
	awaitMessage(t, display, "spBv1.0/e2e/NBIRTH/one", "bdSeq")
	one.Kill()
	awaitMessage(t, display, "spBv1.0/e2e/NDEATH/one", "bdSeq")

	one = f.Daemon(t, "agentd", "one", predict...)
	one.Await(t, "version=2 task=plane pinned=false")
	one.Stop(t, syscall.SIGTERM, 0)
	for topic, payload := range retained(t, site) {
		for _, prefix := range []string{"homeassistant/", "site/", "te/"} {
			if strings.HasPrefix(topic, prefix) {
				t.Errorf("%s remains: %s", topic, payload)
			}
		}
	}
	lead.Stop(t, syscall.SIGTERM, 0)
}

// awaitMessage waits for a message on the topic that contains the given text, and returns its payload. If the text is
// empty, the message must be empty.
func awaitMessage(t *testing.T, c mqtt.Conn, topic, text string) []byte {
	t.Helper()
	for {
		m := mqtttest.Received(t, c)
		if m.Topic == topic && strings.Contains(string(m.Payload), text) && (len(m.Payload) == 0) == (text == "") {
			return m.Payload
		}
	}
}

// wantDiscovery checks the entities of a discovery message for the target y.
func wantDiscovery(t *testing.T, payload []byte) {
	t.Helper()
	var got struct {
		AvailabilityTopic string `json:"availability_topic"`
		Components        map[string]struct {
			Platform      string
			EntityID      string `json:"default_entity_id"`
			ValueTemplate string `json:"value_template"`
		}
	}
	if err := json.Unmarshal(payload, &got); err != nil {
		t.Fatal(err)
	}
	for name, id := range map[string]string{"forecast": "sensor.one_y_forecast", "residual": "sensor.one_y_residual",
		"anomaly": "binary_sensor.one_y_anomaly"} {
		c := got.Components[name]
		if c.EntityID != id || c.ValueTemplate != "{{ value_json."+name+" }}" {
			t.Errorf("%s is %+v", name, c)
		}
	}
	if got.AvailabilityTopic != "site/forecast/one/availability" {
		t.Errorf("the availability topic is %s", got.AvailabilityTopic)
	}
}
