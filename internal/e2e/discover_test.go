package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
)

// TestDiscover checks that `agentd discover` lists the values of devices on Mosquitto, and that agentd and the
// coordinator accept the configuration that it proposes.
func TestDiscover(t *testing.T) {
	t.Parallel()
	m := brokers.NewMosquitto(t, []byte(brokers.AnonymousListenerConf))
	m.Start(t)
	gateway := mqtttest.Dial(t, mqtt.Options{URL: "tcp://" + m.Address, ClientID: "gateway"})
	for topic, file := range map[string]string{
		"tele/pow1/SENSOR": "02-tasmota-energy.json", "shelly1/status/switch:0": "03b-shelly-status-switch.json",
		"telegraf/host/modbus":                       "12-telegraf-influx-line.txt",
		"homeassistant/sensor/sensorBedroomT/config": "14-homeassistant-discovery-config.json",
	} {
		text, err := os.ReadFile(filepath.Join("../../data/sources/testdata/devices", file))
		if err != nil {
			t.Fatal(err)
		}
		mqtttest.Publish(t, gateway, mqtt.Message{Topic: topic, Payload: text, Retained: true})
	}
	sparkplug, err := os.ReadFile("../../data/sources/testdata/devices/05d-sparkplug-ddata.bin")
	if err != nil {
		t.Fatal(err)
	}
	ended, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-ended:
				return
			default:
			}
			for topic, text := range map[string][]byte{
				"zigbee2mqtt/Living Room":        fmt.Appendf(nil, `{"temperature":%d.5,"wifi_password":4711}`, 20+i%3),
				"spBv1.0/site/DDATA/Pi/Pibrella": sparkplug,
			} {
				mqtttest.Publish(t, gateway, mqtt.Message{Topic: topic, Payload: text, QoS: mqtt.AtLeastOnce})
			}
			mqtttest.SyncWithBroker(t, gateway)
		}
	}()
	dir := t.TempDir()
	table := programs.MustRun(t, "agentd", "discover", "--broker", "tcp://"+m.Address, "--for", "2s", "--write", dir)
	close(ended)
	<-stopped
	for _, want := range []string{
		`Zigbee2MQTT +Living Room +temperature +2[012]\.5 +20\.5…22\.5 +\S+ +[▁▂▃▄▅▆▇█]+`,
		`Tasmota +pow1 +ENERGY\.Power +2635 .*retained only`, `Shelly +shelly1 +apower +11\.5`, `Telegraf +host `,
		`Sparkplug B +Pibrella `,
	} {
		if !regexp.MustCompile(want).MatchString(table) {
			t.Errorf("no line %s in\n%s", want, table)
		}
	}
	if strings.Contains(table, "4711") {
		t.Errorf("the table shows a password:\n%s", table)
	}
	code, _, stderr := programs.Run(t, "agentd", "discover", "--broker", "tcp://"+m.Address, "--for", "1s", "--write",
		dir)
	if code == 0 || !strings.Contains(stderr, "agentd.discovered.yaml already exists") &&
		!strings.Contains(stderr, "coordinator.discovered.yaml already exists") {
		t.Errorf("a second proposal in the same folder: exit status %d, %s", code, stderr)
	}
	checkProposal(t, dir)
	code, _, stderr = programs.Run(t, "agentd", "discover", "--broker", "tcp://"+m.Address, "--for", "1s", "--filter",
		"nothing/here")
	if code == 0 || !strings.Contains(stderr, "no numbers arrived") {
		t.Errorf("without messages: exit status %d, %s", code, stderr)
	}
	m.Kill()
	code, _, stderr = programs.Run(t, "agentd", "discover", "--broker", "tcp://"+m.Address, "--for", "1s")
	if code == 0 || !strings.Contains(stderr, "no connection to the broker tcp://"+m.Address) {
		t.Errorf("without a broker: exit status %d, %s", code, stderr)
	}
}

// checkProposal checks that both programs accept the proposal after a user has completed it.
func checkProposal(t *testing.T, dir string) {
	t.Helper()
	programs.MustRun(t, "coordinator", "init", "site", "--dir", filepath.Join(dir, "site"), "--broker",
		"tcp://127.0.0.1:1", "--features", "a", "--target", "y")
	agent, err := os.ReadFile(filepath.Join(dir, "agentd.discovered.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	inputs, err := os.ReadFile(filepath.Join(dir, "coordinator.discovered.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s\n%s", agent, inputs)
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key := filepath.Join(dir, "one.key")
	public := strings.TrimSpace(programs.MustRun(t, "agentd", "key", "new", key))
	programs.MustRun(t, "agentd", "config", "check", "--config", write("agentd.yaml", "federation: site\nid: one\n"+
		"broker: {url: \"tcp://127.0.0.1:1\"}\nidentity: {key_file: "+key+", coordinator_key: "+public+"}\n"+
		"state_dir: "+dir+"\n"+string(agent)))
	programs.MustRun(t, "coordinator", "config", "check", "--config", write("coordinator.yaml", "federation: site\n"+
		"broker: {url: \"tcp://127.0.0.1:1\"}\nidentity: {key_file: "+key+", agents_file: "+write("agents",
		"one "+public+"\n")+
		"}\nstate_dir: "+dir+"\n"+strings.Replace(string(inputs), "task:\n", "task:\n  name: site\n",
		1)+
		"round: {participants: 1, quorum: 1, gather: {target: 1, minimum: 1}}\n"))
}
