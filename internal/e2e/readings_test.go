package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
)

// TestReadings runs an agent that records the sensor readings of a gateway from the site's broker. Metrics and status
// must show the readings, and also an unavailable broker. The agent must decline a task that requires table columns,
// and give a reason.
func TestReadings(t *testing.T) {
	t.Parallel()
	f := newFederation(t, brokers.OpenMosquitto(t))
	f.lead(t, f.AddAgent(t, "one", plane(20)), `{participants: 1, quorum: 1, rounds: 0, deadline: 2s, `+
		`gather: {target: 1, minimum: 1, within: 2s, spread: 10ms}}`)
	m := brokers.NewMosquitto(t, []byte(brokers.AnonymousListenerConf))
	m.Start(t)
	text, err := os.ReadFile(f.Path("one.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	data := "data: {csv: " + f.Path("one.csv") + "}"
	if !strings.Contains(string(text), data) {
		t.Fatalf("no %s in\n%s", data, text)
	}
	f.Write(t, "one.yaml", strings.Replace(string(text), data, `
data: {source: mqtt, columns: {a: site/air a, y: site/air y}}
readings: {broker: {url: tcp://`+m.Address+`}}`, 1))
	lead := f.Daemon(t, "coordinator", "coordinator")
	one := f.Daemon(t, "agentd", "one", "--set", "metrics.listen=127.0.0.1:0")
	url := regexp.MustCompile(`url=(\S+)`).FindStringSubmatch(one.Await(t, "serving metrics"))[1]
	one.Await(t, "the task requires columns of a file, but the data source provides readings: define task.inputs")
	metric := func(name string) float64 { return testkit.ScrapeMetric(t, url, name) }

	gateway := mqtttest.Dial(t, mqtt.Options{URL: "tcp://" + m.Address, ClientID: "gateway"})
	testkit.Until(t, "its values are counted", func() bool {
		mqtttest.Publish(t, gateway, mqtt.Message{Topic: "site/air", Payload: []byte(`{"a":1.5,"y":"?"}`)})
		mqtttest.Publish(t, gateway, mqtt.Message{Topic: "site/air", Payload: []byte(`{"a":1e999}`)})
		mqtttest.SyncWithBroker(t, gateway)
		return metric(`agentd_data_values_total{input="a",result="used"}`) > 0 &&
			metric(`agentd_data_values_total{input="a",result="not_finite"}`) > 0 &&
			metric(`agentd_data_values_total{input="y",result="missing"}`) > 0
	})
	_ = gateway.Close()
	m.Kill()
	testkit.Until(t, "the broker that is away is a metric", func() bool {
		return metric(`agentd_data_troubles{kind="broker"}`) == 1
	})
	status := programs.MustRun(t, "agentd", "status", "--config", f.Path("one.yaml"))
	if !strings.Contains(status, "not connected to the site's MQTT broker") {
		t.Errorf("status:\n%s", status)
	}
	m.Start(t)
	testkit.Until(t, "it is back", func() bool { return metric(`agentd_data_troubles{kind="broker"}`) == 0 })
	one.Stop(t, syscall.SIGTERM, 0)
	lead.Stop(t, syscall.SIGTERM, 0)
	segments, err := filepath.Glob(f.Path("state-one/readings/*.segment"))
	if err != nil || len(segments) != 1 {
		t.Errorf("the ring has %v, %v", segments, err)
	}
}
