package broker_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/broker"
)

// retained returns the retained messages of a new broker that uses the given folder.
func retained(t *testing.T, dir string, logger *slog.Logger) map[string]mqtt.Message {
	t.Helper()
	s, err := broker.Start(broker.Options{RetainedDir: dir, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	c := mqtttest.Dial(t, mqtt.Options{URL: s.URL(), ClientID: "reader"})
	defer func() { _ = c.Close() }()
	c.Subscribe(mqtt.AtLeastOnce, "x/#", "end")
	if err := c.Publish(mqtt.Message{Topic: "end"}); err != nil {
		t.Fatal(err)
	}
	got := make(map[string]mqtt.Message)
	for {
		m := mqtttest.Received(t, c)
		if m.Topic == "end" {
			return got
		}
		got[m.Topic] = m
	}
}

func keptFiles(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.retained"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// publishAll publishes messages and returns when the broker has processed them.
func publishAll(t *testing.T, s *broker.Server, messages ...mqtt.Message) {
	t.Helper()
	c := mqtttest.Dial(t, mqtt.Options{URL: s.URL(), ClientID: "writer"})
	c.Subscribe(mqtt.AtMostOnce, "end")
	for _, m := range append(messages, mqtt.Message{Topic: "end"}) {
		if err := c.Publish(m); err != nil {
			t.Fatal(err)
		}
	}
	mqtttest.Received(t, c)
	_ = c.Close()
}

func TestRetainedMessagesSurviveARestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "by the broker")
	s, err := broker.Start(broker.Options{RetainedDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	payload := bytes.Repeat([]byte{7}, 60<<10)
	publishAll(t, s,
		mqtt.Message{Topic: "x/large", Payload: payload, QoS: mqtt.AtLeastOnce, Retained: true},
		mqtt.Message{Topic: "x/replaced", Payload: []byte("old"), Retained: true},
		mqtt.Message{Topic: "x/replaced", Payload: []byte("new"), Retained: true},
		mqtt.Message{Topic: "x/deleted", Payload: []byte("old"), Retained: true},
		mqtt.Message{Topic: "x/deleted", Retained: true},
		mqtt.Message{Topic: "x/never", Retained: true},
		mqtt.Message{Topic: "x/passing", Payload: []byte("new")},
	)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got := retained(t, dir, nil)
		if len(got) != 2 || !bytes.Equal(got["x/large"].Payload, payload) ||
			string(got["x/replaced"].Payload) != "new" {
			t.Errorf("%d messages: %.200v", len(got), got)
		}
		if got["x/large"].QoS != mqtt.AtLeastOnce || got["x/replaced"].QoS != mqtt.AtMostOnce ||
			!got["x/large"].Retained {
			t.Errorf("QoS %d and %d, retained %v", got["x/large"].QoS, got["x/replaced"].QoS, got["x/large"].Retained)
		}
	}
	if files := keptFiles(t, dir); len(files) != 2 {
		t.Errorf("files are %v", files)
	}
}

// TestRetainedMessagesAreInMemoryOnce checks that retained messages use little more memory than their payloads.
// Unmodified mochi also keeps the packet of each retained message.
func TestRetainedMessagesAreInMemoryOnce(t *testing.T) {
	const n, size = 200, 60 << 10
	s := start(t, broker.Options{})
	memory := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := memory()
	for k := range n {
		publishAll(t, s, mqtt.Message{Topic: fmt.Sprint("x/", k), Payload: make([]byte, size), Retained: true})
	}
	if grown := memory() - before; grown > 3*n*size/2 {
		t.Errorf("%d bytes retained take %d", n*size, grown)
	}
	runtime.KeepAlive(s)
}

// TestDamagedFilesAreDropped checks that truncated, damaged, renamed and copied files in the folder of retained
// messages are removed.
func TestDamagedFilesAreDropped(t *testing.T) {
	dir := t.TempDir()
	s, err := broker.Start(broker.Options{RetainedDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	publishAll(t, s, mqtt.Message{Topic: "x/1", Payload: []byte("a message"), Retained: true})
	_ = s.Close()
	whole, err := os.ReadFile(keptFiles(t, dir)[0])
	if err != nil {
		t.Fatal(err)
	}
	name := keptFiles(t, dir)[0]
	for i := range len(whole) + 2 {
		damaged, path := bytes.Clone(whole), name
		switch {
		case i < len(whole): // flip one bit, and truncate the file at this position
			damaged[i] ^= 1
			if i%2 == 1 {
				damaged = damaged[:i]
			}
		case i == len(whole):
			damaged = append(damaged, make([]byte, 200<<10)...)
		default:
			path = filepath.Join(dir, "renamed.retained")
			_ = os.Remove(name)
		}
		for path, data := range map[string][]byte{path: damaged, name + ".partial": whole,
			filepath.Join(dir, "theirs"): whole} {
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		lines := make(chan string, 10)
		if got := retained(t, dir, slog.New(slog.NewTextHandler(lineWriter(lines), nil))); len(got) != 0 {
			t.Errorf("damage %d: got %v", i, got)
		}
		if line := logged(t, lines); !strings.Contains(line, "removed an unreadable retained message") {
			t.Errorf("logged %q", line)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 || entries[0].Name() != "theirs" {
			t.Errorf("damage %d: left over: %v, %v", i, entries, err)
		}
	}
}

// TestFailingDisk checks that the broker continues if the disk fails, and that a restart does not restore old messages.
func TestFailingDisk(t *testing.T) {
	dir := t.TempDir()
	lines := make(chan string, 10)
	s, err := broker.Start(broker.Options{RetainedDir: dir, Logger: slog.New(slog.NewTextHandler(lineWriter(lines),
		nil))})
	if err != nil {
		t.Fatal(err)
	}
	publishAll(t, s, mqtt.Message{Topic: "x/1", Payload: []byte("old"), Retained: true})
	obstacle := keptFiles(t, dir)[0] + ".partial"
	if err := os.MkdirAll(filepath.Join(obstacle, "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	publishAll(t, s,
		mqtt.Message{Topic: "x/1", Payload: []byte("new"), Retained: true},
		mqtt.Message{Topic: "x/1", Payload: []byte("newer"), Retained: true},
	)
	if line := logged(t, lines); !strings.Contains(line, "cannot store retained messages") || len(lines) != 0 {
		t.Errorf("logged %q, and %d more", line, len(lines))
	}
	c := mqtttest.Dial(t, mqtt.Options{URL: s.URL(), ClientID: "reader"})
	c.Subscribe(mqtt.AtMostOnce, "x/1")
	if m := mqtttest.Received(t, c); string(m.Payload) != "newer" {
		t.Errorf("retained is %q", m.Payload)
	}
	_ = s.Close()
	if err := os.RemoveAll(obstacle); err != nil {
		t.Fatal(err)
	}
	if got := retained(t, dir, nil); len(got) != 0 {
		t.Errorf("after the restart: %v", got)
	}
}

func TestFolderThatCannotBe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := broker.Start(broker.Options{RetainedDir: file}); err == nil ||
		!strings.Contains(err.Error(), "folder for retained messages") {
		t.Errorf("Start: %v, %v", s, err)
	}
}
