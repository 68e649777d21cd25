//go:build nightly

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/lab/launch"
	"github.com/fedmesh/fedmesh/mqtt"
)

const (
	loadTopics  = 10_000
	loadRate    = 1_000 // messages per second
	loadSeconds = 60
	// maxLoadMemory is the maximum resident memory, in bytes, of agentd and of agentd discover.
	maxLoadMemory = 64 << 20
)

// TestSensorLoad measures agentd and agentd discover with 10,000 topics and 1,000 messages per second. It fails if a
// program needs too much memory or loses a message. The CPU time is only printed, because the machine may be busy.
func TestSensorLoad(t *testing.T) {
	f := newFederation(t, brokers.OpenMosquitto(t))
	m := brokers.NewMosquitto(t, []byte(brokers.AnonymousListenerConf+"max_queued_messages 100000\n"))
	m.Start(t)
	site := "tcp://" + m.Address
	list := f.AddAgent(t, "one", plane(20))
	f.ConfigureCoordinator(t, `{name: halls, grid: {step: 10s}, inputs: [{name: temperature, unit: "°C", range: [-50, 60]}, `+
		`{name: humidity, range: [0, 100]}], features: [temperature, humidity], target: temperature in 10s, min_rows: 1000}`,
		list, `{participants: 1, quorum: 1, rounds: 0, deadline: 2s, gather: {target: 1, minimum: 1, within: 2s, spread: 10ms}}`)
	config, err := os.ReadFile(f.Path("one.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	f.Write(t, "one.yaml", strings.Replace(string(config), "data: {csv: "+f.Path("one.csv")+"}", `
data: {source: mqtt, columns: {temperature: zigbee2mqtt/+ temperature, humidity: zigbee2mqtt/+ humidity}}
readings: {broker: {url: "`+site+`"}}`, 1))
	f.Daemon(t, "coordinator", "coordinator")
	agent := f.Daemon(t, "agentd", "one", "--set", "metrics.listen=127.0.0.1:0")
	url := regexp.MustCompile(`url=(\S+)`).FindStringSubmatch(agent.Await(t, "serving metrics"))[1]
	agent.Await(t, "local data do not fit the task")
	survey := testkit.Start(t, exec.Command(filepath.Join(string(programs), "agentd"), "discover", "--broker", site,
		"--for",
		fmt.Sprintf("%ds", loadSeconds-5)))

	publishLoad(t, site, 10)
	before := map[*testkit.Process]time.Duration{}
	for _, p := range []*testkit.Process{agent, survey} {
		before[p] = launch.CPUTime(p.Cmd.Process.Pid)
	}
	began := time.Now()
	publishLoad(t, site, loadSeconds-20)
	for name, p := range map[string]*testkit.Process{"agentd": agent, "agentd discover": survey} {
		share := float64(launch.CPUTime(p.Cmd.Process.Pid)-before[p]) / float64(time.Since(began))
		peak := p.Memory(t, "VmHWM")
		t.Logf("%-16s %4.1f %% of a core, at most %.1f MiB resident", name, 100*share, peak/(1<<20))
		if peak > maxLoadMemory {
			t.Errorf("%s needs %.1f MiB; want at most %d MiB", name, peak/(1<<20), maxLoadMemory>>20)
		}
	}
	publishLoad(t, site, 10)
	survey.Wait(t, 0)
	if out := survey.Stdout.String(); !strings.Contains(out, fmt.Sprintf("messages on %d topics", loadTopics)) ||
		strings.Contains(out, "dropped") {
		t.Errorf("the survey prints\n%s", out[max(0, len(out)-1000):])
	}
	// Messages that were published in the first seconds may not be counted, because the program had not subscribed yet.
	testkit.Until(t, "agentd has counted all messages since its subscription", func() bool {
		return testkit.ScrapeMetric(t, url, `agentd_data_values_total{input="humidity",result="used"}`) >
			(loadSeconds-5)*loadRate
	})
	if n := testkit.ScrapeMetric(t, url, `agentd_data_values_total{input="humidity",result="dropped"}`); n > 0 {
		t.Errorf("%v values dropped", n)
	}
	agent.Stop(t, syscall.SIGTERM, 0)
}

// publishLoad publishes loadRate messages per second on loadTopics topics.
func publishLoad(t *testing.T, site string, seconds int) {
	t.Helper()
	c := mqtttest.Dial(t, mqtt.Options{URL: site, ClientID: "gateway"})
	defer c.Close()
	const perTick = loadRate / 100
	tick := time.NewTicker(time.Second / 100)
	defer tick.Stop()
	for i := range seconds * loadRate {
		if i%perTick == 0 {
			<-tick.C
		}
		mqtttest.Publish(t, c, mqtt.Message{Topic: fmt.Sprintf("zigbee2mqtt/sensor%d", i%loadTopics),
			Payload: fmt.Appendf(nil, `{"battery":100,"humidity":%.1f,"linkquality":120,"temperature":%.2f,"voltage":3000}`,
				45+float64(i%50)/10, 21+float64(i%300)/100)})
	}
	mqtttest.SyncWithBroker(t, c)
}
