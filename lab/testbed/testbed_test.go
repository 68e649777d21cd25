package testbed

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/lab/launch"
	"github.com/fedmesh/fedmesh/store"
)

// built builds the programs once for all tests and returns their folder.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "fedmesh-programs-")
	if err == nil {
		err = testkit.BuildInto("../..", dir)
	}
	return dir, err
})

func TestMain(m *testing.M) {
	code := m.Run()
	if !testing.Short() {
		if dir, _ := built(); dir != "" {
			_ = os.RemoveAll(dir)
		}
	}
	os.Exit(code)
}

// options returns the options of a small testbed.
func options(t *testing.T) Options {
	t.Helper()
	if testing.Short() {
		t.Skip("a testbed is processes")
	}
	bin, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return Options{Dir: filepath.Join(t.TempDir(), "bed"), Bin: bin, Agents: 6, Limit: 5 * time.Minute,
		Stdout: t.Output()}
}

// TestCheck runs a small testbed with certificates until every target, panel and alert has data.
func TestCheck(t *testing.T) {
	o := options(t)
	for _, name := range []string{"mosquitto", "prometheus"} {
		if _, err := launch.FindProgram(name); err != nil {
			t.Skip(err)
		}
	}
	o.TLS = true
	if err := Check(t.Context(), o); err != nil {
		t.Error(err)
	}
}

// TestUpAlone checks a federation without third-party programs. The testbed must report which programs are missing,
// save the model and the history, and remove its folder at the end.
func TestUpAlone(t *testing.T) {
	o := options(t)
	o.Dir, o.tools = "", &tools{}
	t.Setenv("TMPDIR", t.TempDir())
	t.Chdir(t.TempDir())
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	said := &said{when: "the federation is running", then: func() { go awaitRounds(t, stop) }}
	o.Stdout = said
	if err := Up(ctx, o); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"6 agents and a coordinator, connected to an embedded broker",
		"Prometheus    not installed", "Grafana       requires Prometheus",
		"the newest model is up/model.safetensors, and the rounds are in up/history.jsonl"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("up says %s\nwant %q", said, want)
		}
	}
	file, err := os.ReadFile("up/model.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	if _, meta, err := store.DecodeSafetensors(file); err != nil || meta["task"] != "wear" {
		t.Errorf("the model has the metadata %v, error %v", meta, err)
	}
	if history, err := os.ReadFile("up/history.jsonl"); err != nil || !bytes.Contains(history, []byte(`"closed"`)) {
		t.Errorf("the history is %s, error %v", history, err)
	}
	if left, err := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, error %v", left, err)
	}
}

// said records the output of a testbed. It calls the function then when the text when appears in the output.
type said struct {
	strings.Builder
	when string
	then func()
}

func (s *said) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(s.when)) {
		s.then()
	}
	return s.Builder.Write(p)
}

// awaitRounds calls stop when the testbed has a history.
func awaitRounds(t *testing.T, stop func()) {
	defer stop()
	for range time.Tick(20 * time.Millisecond) {
		found, err := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "*", "state", "history.jsonl"))
		if err != nil || t.Context().Err() != nil {
			t.Error(err, t.Context().Err())
			return
		}
		for _, path := range found {
			if text, err := os.ReadFile(path); err == nil && bytes.Count(text, []byte("\n")) >= 3 {
				return
			}
		}
	}
}

// TestUpFor checks that a testbed stops after its duration, even before the first round.
func TestUpFor(t *testing.T) {
	o := options(t)
	o.tools, o.For = &tools{}, time.Millisecond
	var out strings.Builder
	o.Stdout = &out
	if err := Up(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "stopped before the first round: there is no model") {
		t.Errorf("up says %s", out.String())
	}
}

// TestUpEnds checks the error if a process ends. It must contain the last log lines of the process, because the log is
// removed together with the folder of the testbed.
func TestUpEnds(t *testing.T) {
	o := options(t)
	o.tools = &tools{prometheus: "/bin/sh"} // the shell rejects the flags of Prometheus and exits
	o.Stdout = io.Discard
	if err := Up(t.Context(), o); err == nil || !strings.Contains(err.Error(), "prometheus ended:\n") {
		t.Errorf("where Prometheus ends: %v", err)
	}
}

// TestGrafana checks the configuration of Grafana. It starts a script instead of Grafana, because Grafana is not
// installed here.
func TestGrafana(t *testing.T) {
	o := options(t)
	log := filepath.Join(t.TempDir(), "environment")
	o.tools = &tools{prometheus: "/bin/true", grafana: []string{"/bin/sh", "-c", "env > " + log}}
	o.Stdout = io.Discard
	b, err := layOut(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.startGrafana(); err != nil {
		t.Fatal(err)
	}
	<-b.services[0].Ended
	env, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	folder := b.Path("grafana/provisioning")
	if !strings.Contains(string(env), "GF_PATHS_PROVISIONING="+folder+"\n") {
		t.Errorf("Grafana is started with %s", env)
	}
	for path, want := range map[string]string{"dashboards/fedmesh.yml": "path: " + b.Path("grafana/dashboards") + " ",
		"datasources/fedmesh.yml": "url: http://" + b.prometheus + "\n"} {
		if text, err := os.ReadFile(filepath.Join(folder, path)); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s is\n%s\nerror %v, want %q", path, text, err, want)
		}
	}
	if all, err := filepath.Glob(b.Path("grafana/dashboards/*.json")); err != nil || len(all) < 5 {
		t.Errorf("dashboards %v, error %v", all, err)
	}
}

// TestCompose checks compose.yml without Docker. Each file that it mounts must exist, and compose.sh must set all
// variables that it uses.
func TestCompose(t *testing.T) {
	const dir = "../../packaging/testbed/"
	text, err := os.ReadFile(dir + "compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct {
			Image, User, Restart string
			Init                 bool
			NetworkMode          string `yaml:"network_mode"`
			Command              any
			Volumes, Ports       []string
			DependsOn            []string `yaml:"depends_on"`
			Environment          map[string]string
		}
	}
	if err := yaml.UnmarshalWithOptions(text, &file, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"network", "mosquitto", "coordinator", "agents", "prometheus", "grafana"} {
		if file.Services[name].Image == "" {
			t.Errorf("no service %s", name)
		}
	}
	for _, volume := range file.Services["grafana"].Volumes {
		here, _, _ := strings.Cut(volume, ":")
		if _, err := os.Stat(dir + here); err != nil {
			t.Error(err)
		}
	}
	script, err := os.ReadFile(dir + "compose.sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`[^$]\$\{(\w+)\}`).FindAllStringSubmatch(string(text), -1) {
		if !strings.Contains(string(script), m[1]+"=$") {
			t.Errorf("compose.sh does not set %s", m[1])
		}
	}
}
