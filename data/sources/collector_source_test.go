//go:build linux || darwin

package sources

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/spec"
)

// streamHarness runs a collecting source under test and sends messages to it.
type streamHarness interface {
	// config returns a configuration that maps the inputs a and b to the JSON members x and y, and the time to the
	// member t.
	config() data.Config
	connect(observe func(mqtt.ObservedMessage)) (mqtt.Conn, error)
	send(t *testing.T, json string)
}

// streamHarnesses contains a harness for each kind of source that collects readings.
var streamHarnesses = map[data.SourceKind]func(t *testing.T) streamHarness{
	data.SourceMQTT: func(*testing.T) streamHarness { return mqttHarness{memory.New(memory.Options{})} },
	data.SourceLines: func(t *testing.T) streamHarness {
		h := pipeHarness(filepath.Join(t.TempDir(), "pipe"))
		if err := syscall.Mkfifo(string(h), 0o600); err != nil {
			t.Fatal(err)
		}
		return h
	},
}

type mqttHarness struct{ *memory.Broker }

func (mqttHarness) config() data.Config {
	return data.Config{Source: data.SourceMQTT, TimeColumn: "t", ColumnByInput: map[string]string{"a": "site/+ x",
		"b": "site/+ y"}}
}

func (h mqttHarness) connect(func(mqtt.ObservedMessage)) (mqtt.Conn, error) {
	return h.Session("data", nil, nil), nil
}

func (h mqttHarness) send(t *testing.T, json string) {
	c := h.Connect("gateway", nil)
	if err := errors.Join(c.Publish(mqtt.Message{Topic: "site/1", Payload: []byte(json)}), c.Close()); err != nil {
		t.Fatal(err)
	}
}

type pipeHarness string

func (h pipeHarness) config() data.Config {
	return data.Config{Source: data.SourceLines, LinesPath: string(h), TimeColumn: "t",
		ColumnByInput: map[string]string{"a": "x",
			"b": "y"}}
}

func (pipeHarness) connect(func(mqtt.ObservedMessage)) (mqtt.Conn, error) {
	return nil, errors.New("no broker is needed")
}

func (h pipeHarness) send(t *testing.T, json string) {
	f, err := os.OpenFile(string(h), os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(json + "\n")
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// streamSuite runs the conformance tests for a collecting source.
func streamSuite(t *testing.T, make func(t *testing.T) streamHarness) {
	t.Run("a section that says nothing", func(t *testing.T) {
		c := data.Config{Source: make(t).config().Source}
		var problems spec.ProblemList
		if CheckConfig(&c, &problems, "data"); problems.Err() == nil {
			t.Error("it has no problem")
		}
	})
	t.Run("a task with columns", func(t *testing.T) {
		c := make(t).config()
		s, err := Open(&c)
		if err != nil {
			t.Fatal(err)
		}
		rows := s.OpenRows(data.RowQuery{Features: []string{"a"}, Target: "b"})
		if _, err := rows.Snapshot(); err == nil || !strings.Contains(err.Error(), "task.inputs") || rows.Changed() {
			t.Errorf("rows of readings without inputs: %v", err)
		}
		mustClose(t, s)
	})
	t.Run("lives", func(t *testing.T) {
		recipe := spec.RowRecipe{Grid: spec.TimeGrid{Step: time.Second}, Inputs: []spec.InputSeries{{Name: "a"},
			{Name: "b"}}}.WithDefaults()
		h, e := make(t), envAt(t.TempDir())
		e.ConnectBroker = h.connect
		var problems spec.ProblemList
		c := h.config()
		if CheckConfig(&c, &problems, "data"); problems.Err() != nil {
			t.Fatal(problems.Err())
		}
		var want []data.Reading
		for life := range 3 {
			s := started(t, c, e)
			if got := come(t, s.recorder.newReadingFeed(nil)); !same(got, want) {
				t.Errorf("life %d begins with %+v, want %+v", life, got, want)
			}
			if err := s.Probe(); (err == nil) != (life > 0) {
				t.Errorf("life %d: %v", life, err)
			}
			// Each run has sent readings of three seconds. The newest second may still change.
			v, err := s.OpenRows(data.RowQuery{Features: []string{"a"}, Target: "b in 1s", Recipe: &recipe}).Snapshot()
			if life == 0 && (err == nil || !strings.Contains(err.Error(), "no readings received since")) ||
				life == 1 && (err != nil || v.Rows.Len() != 1) || life == 2 && (err != nil || v.Rows.Len() != 3) {
				t.Errorf("life %d begins with the rows %+v: %v", life, v, err)
			}
			for i := range 3 {
				at := int64(1772366400 + 10*life + i)
				h.send(t, fmt.Sprintf(`{"t":%d,"x":%d,"y":%d.5,"z":1}`, at, i, life))
				want = append(want, data.Reading{Input: "a", Time: at * 1e9, Value: float64(i)},
					data.Reading{Input: "b", Time: at * 1e9, Value: float64(life) + 0.5})
			}
			h.send(t, `{"t":1772366400,"x":`)
			tick := time.NewTicker(time.Millisecond)
			for !slices.ContainsFunc(s.recorder.stats.columnReports(), func(c data.ColumnReport) bool {
				return c.Name == "b" && c.Used == 3 && c.Unused[grid.ReasonMalformed] == 1 &&
					c.NewestTime == want[len(want)-1].Time
			}) {
				<-tick.C
			}
			tick.Stop()
			mustClose(t, s)
		}
	})
}
