package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// result is the last line of the demo's JSON output.
type result struct {
	Event     string  `json:"event"`
	Rounds    int     `json:"rounds"`
	Federated float64 `json:"federated"`
	Model     string  `json:"model"`
}

func demo(t *testing.T, args ...string) result {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(programs.MustRun(t,
		"fedlab", append([]string{"demo", "--json", "--rounds", "4"}, args...)...)), "\n")
	var r result
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &r); err != nil || r.Event != "result" || r.Rounds != 4 {
		t.Fatalf("the last line is %s, error %v", lines[len(lines)-1], err)
	}
	return r
}

// TestDemoOnMosquitto checks that the demo learns the same model on a real broker, with separate processes, as with the
// embedded broker. The demo must leave no retained messages on the broker.
func TestDemoOnMosquitto(t *testing.T) {
	t.Parallel()
	url, out := brokers.OpenMosquitto(t), filepath.Join(t.TempDir(), "out")
	remote := demo(t, "--broker", url, "--processes", "--out", out)
	if local := demo(t); local.Model != remote.Model || local.Model == "" {
		t.Errorf("here the model is %s, as processes on Mosquitto %s", local.Model, remote.Model)
	}
	if kept := retained(t, url); len(kept) > 0 {
		t.Errorf("left at the broker: %v", kept)
	}
	if history, err := os.ReadFile(filepath.Join(out, "history.jsonl")); err != nil ||
		bytes.Count(history, []byte("\n")) != 5 {
		t.Errorf("history\n%s, error %v; want five lines", history, err)
	}
}

// TestDemoInterrupted checks that the demo leaves no retained messages on the broker when it is interrupted with
// Ctrl-C.
func TestDemoInterrupted(t *testing.T) {
	t.Parallel()
	url := brokers.OpenMosquitto(t)
	p := programs.Start(t, "fedlab", "demo", "--broker", url, "--metrics", "127.0.0.1:0", "--rounds", "1000")
	for len(retained(t, url)) < 13 { // 13 is one announcement and the presence messages of 12 agents
		select {
		case <-p.Ended:
			t.Fatal("the demo ended by itself")
		default:
		}
	}
	p.Stop(t, syscall.SIGINT, 130)
	if log := p.Log(); log != "fedlab: interrupted\n" {
		t.Errorf("on stderr:\n%s", log)
	}
	if kept := retained(t, url); len(kept) > 0 {
		t.Errorf("left at the broker: %v", kept)
	}
}

// TestDemoRefuses checks that invalid usage is reported before the demo starts.
func TestDemoRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"--participants 13": "fedlab: --participants must be between 1 and 12 (0 means 6), but is 13\n" +
			"see 'fedlab demo --help'\n",
		"--model tree": "fedlab: --model must be linear or mlp, but is \"tree\"\nsee 'fedlab demo --help'\n",
		"now":          "fedlab: unknown command \"now\" for \"fedlab demo\"\nsee 'fedlab demo --help'\n",
	} {
		code, stdout, stderr := programs.Run(t, "fedlab", append([]string{"demo"}, strings.Fields(args)...)...)
		if code != 2 || stdout != "" || stderr != want {
			t.Errorf("%s: exit %d\n%s%s\nwant exit 2\n%s", args, code, stdout, stderr, want)
		}
	}
}
