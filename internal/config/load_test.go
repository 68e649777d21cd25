package config_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/spec"
)

// settings is a configuration with one key of every supported kind.
type settings struct {
	Broker broker            `yaml:"broker"`
	Task   task              `yaml:"task"`
	TLS    *tls              `yaml:"tls"`
	Agents []string          `yaml:"agents"`
	Ports  []int             `yaml:"ports"`
	Labels map[string]string `yaml:"labels"`
	Hidden func()            `yaml:"-"`
}

type broker struct {
	URL          string        `yaml:"url"`
	Password     config.Secret `yaml:"password"`
	PasswordFile string        `yaml:"password_file"`
	Keepalive    time.Duration `yaml:"keepalive"`
}

type task struct {
	Participants int           `yaml:"participants"`
	StepSize     float64       `yaml:"step_size"`
	Shuffle      bool          `yaml:"shuffle"`
	Spool        spec.ByteSize `yaml:"spool"`
	Level        uint8         `yaml:"level"`
	Offset       int8          `yaml:"offset"`
}

type tls struct {
	CA     string `yaml:"ca"`
	Strict bool   `yaml:"strict"`
}

func defaults() settings {
	return settings{
		Broker: broker{URL: "mqtt://localhost", Keepalive: 30 * time.Second},
		Task:   task{Participants: 4, StepSize: 0.1, Spool: 64 << 10},
		Agents: []string{"default"},
		Labels: map[string]string{"default": "yes"},
	}
}

// load writes yaml to the file c.yaml in a new working directory and loads it. Errors therefore name the file "c.yaml".
func load(t *testing.T, yaml string, src config.Source) (settings, error) {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.WriteFile("c.yaml", []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := defaults()
	src.Path = "c.yaml"
	err := config.Load(&cfg, src)
	return cfg, err
}

func TestLoadEveryKind(t *testing.T) {
	const yaml = `# every kind
broker:
  url: "mqtts://brókèr:8883"  # comment
  password: |
    hunter2
  keepalive: 1m30s
task: {participants: +6, step_size: 1e-2, shuffle: True, spool: 40MB, level: 255, offset: -128}
tls:
  ca: 'it''s'
agents:
- a1
- "12"
ports: [1883, 8883]
labels:
  site: north wing
  7: seven
`
	got, err := load(t, yaml, config.Source{})
	if err != nil {
		t.Fatal(err)
	}
	want := settings{
		Broker: broker{URL: "mqtts://brókèr:8883", Password: "hunter2\n", Keepalive: 90 * time.Second},
		Task:   task{Participants: 6, StepSize: 0.01, Shuffle: true, Spool: 40e6, Level: 255, Offset: -128},
		TLS:    &tls{CA: "it's"},
		Agents: []string{"a1", "12"},
		Ports:  []int{1883, 8883},
		Labels: map[string]string{"site": "north wing", "7": "seven"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestLoadKeepsDefaults(t *testing.T) {
	for _, yaml := range []string{"# only a comment\n", "---\n# marked\n", "\ufeff# with a mark\r\n",
		"---\n{}\n...\n"} {
		got, err := load(t, yaml, config.Source{})
		if err != nil {
			t.Errorf("%q: %v", yaml, err)
		}
		if want := defaults(); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %+v, want the defaults", yaml, got)
		}
	}
}

func TestLoadOptionalSectionStaysNil(t *testing.T) {
	got, err := load(t, "task: {}\n", config.Source{})
	if err != nil || got.TLS != nil {
		t.Errorf("tls = %+v, %v; want nil", got.TLS, err)
	}
	got, err = load(t, "tls: {}\n", config.Source{})
	if err != nil || got.TLS == nil {
		t.Errorf("tls = %+v, %v; want an empty section", got.TLS, err)
	}
	got, err = load(t, "# none\n", config.Source{EnvPrefix: "AGENTD", Environ: []string{"AGENTD_TLS_CA=x"}})
	if err != nil || got.TLS == nil || got.TLS.CA != "x" {
		t.Errorf("tls = %+v, %v; want one with ca x", got.TLS, err)
	}
}

func TestPrecedence(t *testing.T) {
	const yaml = "task: {participants: 1, level: 1, offset: 1}\nagents: [file]\n"
	got, err := load(t, yaml, config.Source{
		EnvPrefix:        "AGENTD",
		IgnoredVariables: []string{"AGENTD_CONFIG"},
		Environ: []string{
			"AGENTD_TASK_LEVEL=2", "AGENTD_TASK_OFFSET=2", "AGENTD_CONFIG=c.yaml", "AGENTDX=1", "PATH=/bin",
			"AGENTD_AGENTS=a, b", "AGENTD_PORTS=", "AGENTD_LABELS=k=v=w,x=", "AGENTD_BROKER_URL=12",
		},
		Overrides: map[string]string{"task.offset": "3", "broker.keepalive": "5m", "task.shuffle": "true"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := defaults()
	want.Task = task{Participants: 1, StepSize: 0.1, Shuffle: true, Spool: 64 << 10, Level: 2, Offset: 3}
	want.Broker.URL, want.Broker.Keepalive = "12", 5*time.Minute
	want.Agents, want.Ports = []string{"a", "b"}, []int{}
	want.Labels = map[string]string{"k": "v=w", "x": ""}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestLoadWithoutFile(t *testing.T) {
	cfg := defaults()
	if err := config.Load(&cfg, config.Source{Environ: []string{"AGENTD_NONSENSE=1"}}); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(cfg, defaults()) {
		t.Errorf("got %+v, want the defaults", cfg)
	}
}

func TestUnreadableFile(t *testing.T) {
	t.Chdir(t.TempDir())
	cfg := defaults()
	err := config.Load(&cfg, config.Source{Path: "none.yaml"})
	if got, want := err.Error(), "none.yaml: cannot read the file: no such file or directory"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var e *config.Error
	if !errors.Is(err, fs.ErrNotExist) || !errors.As(err, &e) || e.Origin != "none.yaml" {
		t.Errorf("%#v: want a *config.Error around fs.ErrNotExist", err)
	}
	err = config.Load(&cfg, config.Source{Path: "."})
	if got, want := err.Error(), ".: cannot read the file: is a directory"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestSizeCaps(t *testing.T) {
	_, err := load(t, "# "+strings.Repeat("x", 1<<20), config.Source{})
	if got, want := err.Error(), "c.yaml: cannot read the file: the file is larger than 1 MiB"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	_, err = load(t, strings.Repeat("[", 1<<19), config.Source{})
	if want := "c.yaml:1:10001: the file contains too many keys and values; "; !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got  %s\nwant %s…", err, want)
	}
}

func TestBadStructPanics(t *testing.T) {
	load := func(cfg any) func() { return func() { _ = config.Load(cfg, config.Source{}) } }
	tests := map[string]func(){
		"config: the argument must be a non-nil pointer to a struct": load(settings{}),
		"config: field struct { A int }.A has no key: give it a yaml tag": load(&struct {
			A int
		}{}),
		"config: field struct { A *int \"yaml:\\\"a\\\"\" }.A has the unsupported type *int": load(&struct {
			A *int `yaml:"a"`
		}{}),
		"config: the keys a and a have the same environment variable": load(&struct {
			A int `yaml:"a"`
			B int `yaml:"a"`
		}{}),
		"config: the keys a-b and a_b have the same environment variable": load(&struct {
			A int `yaml:"a-b"`
			B int `yaml:"a_b"`
		}{}),
	}
	for want, f := range tests {
		func() {
			defer func() {
				if got := recover(); got != want {
					t.Errorf("panic %v, want %v", got, want)
				}
			}()
			f()
		}()
	}
}

func FuzzLoad(f *testing.F) {
	seeds := []string{
		"broker: {url: x}\n", "task:\n  level: 3\n", "a: |\n  x\n- b", "a: b: c", "? a\n: b", "&a *a", "{a: [}", "\t",
		"a:\n- \n",
		"tls:\n\tca: \"\\u00e9\"", "%YAML 1.2\n---\n", "{? {? ", "0_", "labels: {~: ~, 1: [2]}", "日本: '",
		"broker:\r\n  url: >-\r\n    x\r\n",
		"a: !!binary x\n---\n...\nb: 1", "ports: [1, .nan, 0x1, 1e999]", "broker:\n  password: \"x\n",
	}
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	path := filepath.Join(f.TempDir(), "fuzz.yaml")
	f.Fuzz(func(t *testing.T, yaml []byte) {
		if err := os.WriteFile(path, yaml, 0o600); err != nil {
			t.Fatal(err)
		}
		cfg := defaults()
		err := config.Load(&cfg, config.Source{Path: path})
		if err == nil {
			reload(t, cfg)
			return
		}
		var joined interface{ Unwrap() []error }
		if !errors.As(err, &joined) {
			t.Fatalf("%T is not a joined error", err)
		}
		for _, err := range joined.Unwrap() {
			var e *config.Error
			if !errors.As(err, &e) || e.Origin != path || e.Error() == "" {
				t.Errorf("%#v is no *config.Error that names its origin", err)
			}
		}
	})
}
