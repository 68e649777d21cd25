package e2e

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/data/sparkplug"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
)

// TestForecastInTenMinutes follows the instructions in docs/howto/forecast-your-sensors.md literally. The folders
// device and server replace the two machines of the page, and two Mosquitto processes are the brokers. The test changes
// only the broker addresses and the printed key. It copies files between the folders instead of running scp. Meanwhile,
// Zigbee2MQTT, Shelly and Sparkplug devices publish readings.
func TestForecastInTenMinutes(t *testing.T) {
	t.Parallel()
	site, federation := brokers.OpenMosquitto(t), brokers.OpenMosquitto(t)
	gateway := mqtttest.Dial(t, mqtt.Options{URL: site, ClientID: "gateway"})
	display := mqtttest.Dial(t, mqtt.Options{URL: site, ClientID: "display"})
	display.Subscribe(mqtt.AtMostOnce, "fedmesh/forecast")

	w := newWalkthrough(t, map[string]string{"tcp://gateway.example:1883": site,
		"tcp://server.example:1883": federation})
	whilePublishing(gateway, siteMessages, func() string {
		for _, step := range w.steps {
			w.run(t, step)
		}
		for {
			m := mqtttest.ReceivedWithin(t, display, 4*time.Minute)
			if strings.Contains(string(m.Payload), `"target":"hall_temperature in 10s"`) {
				return ""
			}
		}
	})
	if w.commandCount > 8 || w.editCount > 3 {
		t.Errorf("the page has %d commands and %d edited lines; want at most 8 and 3", w.commandCount, w.editCount)
	}
}

// siteMessages returns the messages of a site with a Zigbee2MQTT sensor, a Shelly plug and a Sparkplug pump. Their
// values change periodically, with periods of some minutes.
func siteMessages(i int) []mqtt.Message {
	if i%50 > 0 { // whilePublishing calls siteMessages every 10 ms
		return nil
	}
	now := time.Now()
	wave := func(period float64) float64 { return math.Sin(2 * math.Pi * float64(i/50) / period) }
	const node = "spBv1.0/site/%s/edge/pump"
	metric := sparkplug.NewDouble("Pressure", 2+0.3*wave(90))
	message := func(kind string, seq int) mqtt.Message {
		p := sparkplug.Payload{Timestamp: sparkplug.Milliseconds(now), Seq: uint64(seq), HasSeq: true,
			Metrics: []sparkplug.Metric{metric}}
		return mqtt.Message{Topic: fmt.Sprintf(node, kind), Payload: p.Encode()}
	}
	all := []mqtt.Message{
		{Topic: "zigbee2mqtt/hall", Payload: fmt.Appendf(nil, `{"temperature":%.2f,"humidity":%.1f,"linkquality":120}`,
			21+2*wave(240), 45+4*wave(300))},
		{Topic: "shellyplug-1/status/switch:0", Payload: fmt.Appendf(nil, `{"id":0,"output":true,"apower":%.1f}`,
			50+10*wave(150))},
	}
	if i == 0 {
		birth := sparkplug.Payload{Timestamp: sparkplug.Milliseconds(now), HasSeq: true}
		return append(all, mqtt.Message{Topic: "spBv1.0/site/NBIRTH/edge", Payload: birth.Encode()}, message("DBIRTH",
			1))
	}
	return append(all, message("DDATA", (i/50+1)%256))
}

// walkthrough executes the steps of a documentation page on two machines.
type walkthrough struct {
	steps                   []pageStep
	dirs                    map[string]string // folder of each machine
	urlByExample            map[string]string
	publicKey               string
	commandCount, editCount int
}

// pageStep is a step of the page: a command or an edit of a file.
type pageStep struct{ machine, command string }

// editUncommentPredict is the command of the only pageStep that edits a file.
const editUncommentPredict = "edit: remove # before predict"

var machinePattern = regexp.MustCompile(`(?m)^On the \*\*(device|server)\*\*`)

func newWalkthrough(t *testing.T, urlByExample map[string]string) *walkthrough {
	t.Helper()
	text, err := os.ReadFile(root + "docs/howto/forecast-your-sensors.md")
	if err != nil {
		t.Fatal(err)
	}
	w := &walkthrough{urlByExample: urlByExample, dirs: map[string]string{"device": t.TempDir(), "server": t.TempDir()}}
	machine, isBlock := "", false
	for line := range strings.SplitSeq(string(text), "\n") {
		switch m := machinePattern.FindStringSubmatch(line); {
		case m != nil:
			machine = m[1]
		case strings.HasPrefix(line, "```"):
			isBlock = line == "```sh"
		case isBlock:
			w.steps = append(w.steps, pageStep{machine, line})
		case strings.Contains(line, "remove the `#`"):
			w.steps = append(w.steps, pageStep{machine, editUncommentPredict})
		}
	}
	return w
}

// run performs a step. Daemons continue to run until the end of the test.
func (w *walkthrough) run(t *testing.T, step pageStep) {
	t.Helper()
	dir, command := w.dirs[step.machine], step.command
	if command == editUncommentPredict {
		w.editCount++
		path := filepath.Join(dir, "agentd.discovered.yaml")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.Replace(string(text), "\n#predict:", "\npredict:", 1)),
			0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	w.commandCount++
	for example, url := range w.urlByExample {
		command = strings.ReplaceAll(command, example, url)
	}
	command = strings.ReplaceAll(command, "PUBLIC-KEY", w.publicKey)
	if strings.HasPrefix(command, "scp ") {
		command = strings.NewReplacer("scp ", "cp ", "server.example:", w.dirs["server"]+"/").Replace(command)
	}
	if program, _, _ := strings.Cut(command, " run "); program == "agentd" || program == "coordinator" {
		cmd := exec.Command(filepath.Join(string(programs), program), strings.Fields(command)[1:]...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "COORDINATOR_METRICS_LISTEN=127.0.0.1:0")
		testkit.Start(t, cmd)
		return
	}
	cmd := exec.Command("sh", "-ec", command)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+string(programs)+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("on the %s: %s: %v\n%s", step.machine, command, err, out)
	}
	t.Logf("on the %s: %s\n%s", step.machine, command, out)
	if strings.HasPrefix(command, "agentd key new") {
		w.publicKey = strings.TrimSpace(string(out))
	}
}
