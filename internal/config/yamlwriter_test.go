package config_test

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/spec"
)

func TestWrite(t *testing.T) {
	cfg := settings{
		Broker: broker{URL: "mqtts://b:8883", Password: "hunter2", PasswordFile: "/run/x", Keepalive: 90 * time.Second},
		Task:   task{Participants: -6, StepSize: 1e-7, Shuffle: true, Spool: 40e6, Level: 255},
		TLS:    &tls{CA: "yes"},
		Agents: []string{"a1", "12", "", "on", "a\nb", "é", "1e3"},
		Ports:  []int{1, 2},
		Labels: map[string]string{"site": "north wing", "a": "x: y"},
	}
	const want = `broker:
  url: "mqtts://b:8883"
  password: "[redacted]"
  password_file: /run/x
  keepalive: 1m30s
task:
  participants: -6
  step_size: 1e-07
  shuffle: true
  spool: 40MB
  level: 255
  offset: 0
tls:
  ca: "yes"
  strict: false
agents: [a1, "12", "", "on", "a\nb", "é", "1e3"]
ports: [1, 2]
labels: {a: "x: y", site: "north wing"}
`
	var b bytes.Buffer
	if err := config.WriteYAML(&b, &cfg); err != nil {
		t.Fatal(err)
	}
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	cfg.Broker.Password = ""
	reload(t, cfg)
}

// TestWriteRedactsURLs checks that passwords in URLs are redacted.
func TestWriteRedactsURLs(t *testing.T) {
	cfg := settings{Broker: broker{URL: "http://me:hunter2@proxy:3128"}, Agents: []string{"a@b", "tcp://h:1/x@y"}}
	var b bytes.Buffer
	if err := config.WriteYAML(&b, &cfg); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`url: "http://[redacted]@proxy:3128"`, `agents: ["a@b", "tcp://h:1/x@y"]`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %s in\n%s", want, &b)
		}
	}
}

func TestWriteOptionalSections(t *testing.T) {
	var cfg struct {
		Outer struct {
			Inner *tls `yaml:"inner"`
		} `yaml:"outer"`
		Nil *tls `yaml:"nil"`
	}
	var b bytes.Buffer
	if err := config.WriteYAML(&b, &cfg); err != nil || b.String() != "outer: {}\n" {
		t.Errorf("got %q, %v", b.String(), err)
	}
}

func TestWriteExtremes(t *testing.T) {
	reload(t, settings{
		Broker: broker{Keepalive: math.MinInt64},
		Task:   task{Participants: math.MinInt, StepSize: math.MaxFloat64, Spool: math.MaxInt64, Offset: -128},
		Labels: map[string]string{"\x00\t\"'\\": "\u2028\U0001f600\u0085", "~": "null", "": "0x1f", "true": "01"},
	})
}

func TestWriteFails(t *testing.T) {
	want := errors.New("full")
	if err := config.WriteYAML(writerFunc(func([]byte) (int, error) { return 0, want }), new(settings)); !errors.Is(err,
		want) {
		t.Errorf("got %v, want %v", err, want)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// reload checks that Load restores the configuration that WriteYAML has written. Only the password and URLs with a
// password may differ, because they are redacted.
func reload(t *testing.T, cfg settings) {
	t.Helper()
	cfg.Broker.Password = ""
	var b bytes.Buffer
	if err := config.WriteYAML(&b, &cfg); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "[redacted]@") {
		return
	}
	path := filepath.Join(t.TempDir(), "again.yaml")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	var again settings
	if err := config.Load(&again, config.Source{Path: path}); err != nil {
		t.Fatalf("%v\nof\n%s", err, b.String())
	}
	// An empty list or map is read back as empty, even if it was nil.
	if len(cfg.Agents)+len(again.Agents) == 0 {
		cfg.Agents, again.Agents = nil, nil
	}
	if len(cfg.Ports)+len(again.Ports) == 0 {
		cfg.Ports, again.Ports = nil, nil
	}
	if len(cfg.Labels)+len(again.Labels) == 0 {
		cfg.Labels, again.Labels = nil, nil
	}
	if !reflect.DeepEqual(again, cfg) {
		t.Errorf("got  %+v\nwant %+v\nof\n%s", again, cfg, b.String())
	}
}

func TestByteSizeString(t *testing.T) {
	for want, size := range map[string]spec.ByteSize{
		"0B": 0, "1B": 1, "1kB": 1000, "-1KiB": -1024, "40MB": 40e6, "64KiB": 65536, "3GiB": 3 << 30,
		"9223372036854775807B": math.MaxInt64,
	} {
		if got := size.String(); got != want {
			t.Errorf("%d: got %s, want %s", int64(size), got, want)
		}
	}
}
