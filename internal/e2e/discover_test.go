package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

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
	const devices = "../../data/sources/testdata/devices"
	for topic, file := range map[string]string{
		"tele/pow1/SENSOR": "02-tasmota-energy.json", "pow2/tele/SENSOR": "02b-tasmota-ds18x20.json",
		"shelly2/events/rpc": "03-shelly-notifystatus.json", "shelly1/status/switch:0": "03b-shelly-status-switch.json",
		"node/sensor/id/state": "04-esphome-state.txt", "v3/app1@tenant1/devices/dev1/up": "06-ttn-uplink.json",
		"plant/opcua": "08-opcua-pubsub.json", "azure-iot-operations/data/thermostat": "08b-azure-iot-operations.json",
		"site/senml": "09-senml-rfc8428.json", "te/device/main///m/env_sensor": "10-thin-edge-with-time.json",
		"edgex/events/device/x/y/z": "11-edgex-event.json", "telegraf/host/modbus": "12-telegraf-influx-line.txt",
		"homeassistant/sensor/sensorBedroomT/config": "14-homeassistant-discovery-config.json",
	} {
		text, err := os.ReadFile(filepath.Join(devices, file))
		if err != nil {
			t.Fatal(err)
		}
		mqtttest.Publish(t, gateway, mqtt.Message{Topic: topic, Payload: text, Retained: true})
	}
	sparkplug, err := os.ReadFile(filepath.Join(devices, "05d-sparkplug-ddata.bin"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	table := whilePublishing(gateway, func(i int) []mqtt.Message {
		return []mqtt.Message{
			{Topic: "zigbee2mqtt/Living Room", Payload: fmt.Appendf(nil, `{"temperature":%d.5,"wifi_password":4711}`, 20+i%3)},
			{Topic: "spBv1.0/site/DDATA/Pi/Pibrella", Payload: sparkplug},
		}
	}, func() string {
		return programs.MustRun(t, "agentd", "discover", "--broker", "tcp://"+m.Address, "--for", "2s", "--write", dir)
	})
	for _, want := range []string{
		`Zigbee2MQTT +Living Room +temperature +2[012]\.5 +20\.5…22\.5 +\S+ +[▁▂▃▄▅▆▇█]+`,
		`Tasmota +pow1 +ENERGY\.Power +2635 .*retained only`, `Shelly +shelly1 +apower +11\.5`, `Telegraf +host `,
		`Sparkplug B +Pibrella `,
		`Tasmota +pow2 +\[Id=0000059352D4\]\.Temperature +1\.2 `, `Shelly +shelly2 +switch:0\.apower +11\.5`,
		`ESPHome +node +id +21\.3`, `The Things Network +dev1 `, `OPC UA PubSub +plant `,
		`Azure IoT Operations +thermostat `, `SenML +site `, `thin-edge\.io +main +temperature `, `EdgeX +z `,
		`(?m)^1 values are not shown`,
	} {
		if !regexp.MustCompile(want).MatchString(table) {
			t.Errorf("no line %s in\n%s", want, table)
		}
	}
	if strings.Contains(table, "4711") {
		t.Errorf("the table shows a password:\n%s", table)
	}
	code, _, stderr := programs.Run(t, "agentd", "discover", "--broker", "tcp://"+m.Address, "--for", "1h", "--write",
		dir)
	if code == 0 || !strings.Contains(stderr, "agentd.discovered.yaml already exists") {
		t.Errorf("a second proposal in the same folder: exit status %d, %s", code, stderr)
	}
	code, _, stderr = programs.Run(t, "agentd", "discover", "--username", "x")
	if code != 2 || !strings.Contains(stderr, "require --broker") {
		t.Errorf("a user name without a broker: exit status %d, %s", code, stderr)
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

// whilePublishing publishes messages until run returns.
func whilePublishing(c mqtt.Conn, messages func(i int) []mqtt.Message, run func() string) string {
	ended, stopped := make(chan struct{}), make(chan struct{})
	defer func() {
		close(ended)
		<-stopped
	}()
	go func() {
		defer close(stopped)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			for _, m := range messages(i) {
				_ = c.Publish(m) // ignore a full outbox: only some of the messages must arrive
			}
			select {
			case <-ended:
				return
			case <-tick.C:
			}
		}
	}()
	return run()
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
