package sources

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
)

// station is a device with the inputs a and b of a task, whose readings a broker delivers as JSON.
type station struct {
	t       *testing.T
	gateway mqtt.Conn
	env     data.CollectorEnv
	columns map[string]string
	full    atomic.Bool
	rows    data.QueriedRows
	at      int64 // time of the next reading, in seconds
}

// newStation opens the rows of a task. The target is b one second later, or b as a label that may arrive later if wait
// is set.
func newStation(t *testing.T, wait time.Duration, before func(*station)) *station {
	b := memory.New(memory.Options{})
	s := &station{t: t, gateway: b.Connect("gateway", nil), env: envAt(t.TempDir()), at: time.Now().Unix(),
		columns: map[string]string{"a": "site/a v", "b": "site/b v"}}
	s.env.Disk = store.Disk{FS: fullFS{s.env.Disk.FS, &s.full}}
	s.env.ConnectBroker = func(func(mqtt.ObservedMessage)) (mqtt.Conn, error) {
		return b.Session("data", nil, nil),
			nil
	}
	if before != nil {
		before(s)
	}
	source := started(t, data.Config{Source: data.SourceMQTT, TimeColumn: "t", ColumnByInput: s.columns}, s.env)
	recipe := spec.RowRecipe{Grid: spec.TimeGrid{Step: time.Second}, Inputs: []spec.InputSeries{{Name: "a"},
		{Name: "b", LabelLateness: wait}}}.WithDefaults()
	target := "b in 1s"
	if wait > 0 {
		target = "b"
	}
	s.rows = source.OpenRows(data.RowQuery{Features: []string{"a"}, Target: target, Recipe: &recipe})
	t.Cleanup(func() {
		mustClose(t, source)
		_ = s.gateway.Close()
	})
	return s
}

// hear delivers readings of a and b for the given number of seconds. b is the payload of the input b, in which %d is
// replaced by the time.
func (s *station) hear(seconds int, b string) {
	s.t.Helper()
	for range seconds {
		for topic, text := range map[string]string{"site/a": `{"t":%d,"v":1}`, "site/b": b} {
			if strings.Contains(text, "%d") {
				text = fmt.Sprintf(text, s.at)
			}
			if text == "" {
				continue
			}
			if err := s.gateway.Publish(mqtt.Message{Topic: topic, Payload: []byte(text)}); err != nil {
				s.t.Error(err)
			}
		}
		s.at++
	}
	pass(ringWriteInterval)
}

// wants takes a snapshot. It checks that the snapshot has rows, or returns an error with the given column and reason,
// and that a trouble with the given text is reported.
func (s *station) wants(when string, column, reason, trouble string) {
	s.t.Helper()
	_, err := s.rows.Snapshot()
	var e *data.FileError
	if errors.As(err, &e); reason == "" && err != nil || reason != "" && (e == nil || e.Column != column ||
		e.ReasonCode != reason) {
		s.t.Errorf("%s: %v, want column %q, reason %q", when, err, column, reason)
	}
	all := s.rows.(data.QualityReporter).QualityReport()
	if got := fmt.Sprint(all.Troubles, all); trouble == "" && all.Troubles != nil || !strings.Contains(got, trouble) {
		s.t.Errorf("%s: %s, want %q", when, got, trouble)
	}
}

// TestTroubles checks that each trouble listed in docs/DATA.md is reported in time, with column and reason, and ends
// without user action when its cause has ended.
func TestTroubles(t *testing.T) {
	for name, do := range troubleCases {
		t.Run(name, func(t *testing.T) { synctest.Test(t, do) })
	}
}

// goodPayload is the payload of a valid reading of b, in which %d is replaced by the time.
const goodPayload = `{"t":%d,"v":2}`

// troubleCases contains the ways in which a trouble of a device begins and ends. Each function runs on a simulated
// clock.
var troubleCases = map[string]func(t *testing.T){
	"a topic that never speaks": func(t *testing.T) {
		s := newStation(t, 0, nil)
		s.hear(5, "")
		s.wants("at once", "b", "silent", "b: 0 used")
		pass(silentAfter)
		s.hear(5, "")
		s.wants("later", "b", "silent", `input "b": no readings received from topic site/b since the start of agentd`)
		s.hear(5, goodPayload)
		s.wants("mended", "", "", "")
	},
	"a payload that does not parse": func(t *testing.T) {
		s := newStation(t, 0, nil)
		s.hear(5, `{"v"`)
		s.wants("at once", "b", "malformed", "5 malformed")
		s.hear(30, goodPayload)
		s.wants("mended", "", "", "5 malformed")
	},
	"many payloads that do not parse": func(t *testing.T) {
		s := newStation(t, 0, nil)
		for range 10 {
			s.hear(60, `{"v"`)
			pass(time.Minute)
		}
		s.hear(100, goodPayload)
		s.wants("soon", "b", "malformed", "600 malformed")
		s.hear(63, goodPayload)
		s.wants("mended", "", "", "600 malformed")
	},
	"a payload without the input": func(t *testing.T) {
		s := newStation(t, 0, nil)
		s.hear(5, `{"t":%d,"w":1}`)
		s.wants("at once", "b", "missing", "5 missing")
		s.hear(5, goodPayload)
		s.wants("mended", "", "", "5 missing")
	},
	"an input that the device has not": func(t *testing.T) {
		s := newStation(t, 0, func(s *station) { delete(s.columns, "b") })
		s.hear(5, "")
		s.wants("at once", "b", "silent", "b: 0 used")
		pass(silentAfter)
		s.hear(5, "")
		s.wants("later", "b", "silent", `the data source has no input "b"`)
	},
	"an input that the file has not": func(t *testing.T) {
		h := &csvHarness{path: filepath.Join(t.TempDir(), "d.csv")}
		source, err := Open(&data.Config{CSVPath: h.path, TimeColumn: "t"})
		if err != nil {
			t.Fatal(err)
		}
		recipe := spec.RowRecipe{Grid: spec.TimeGrid{Step: time.Second}, Inputs: []spec.InputSeries{{Name: "a"},
			{Name: "b"},
			{Name: "spare"}}}.WithDefaults()
		s := &station{t: t, rows: source.OpenRows(data.RowQuery{Features: []string{"a"}, Target: "b in 1s",
			Recipe: &recipe})}
		h.put(t, "t,a\n1,1\n2,1\n3,1\n4,1\n")
		s.wants("at once", "b", "silent", `d.csv has no column for the input "b"`)
		h.put(t, "t,a,b\n1,1,1\n2,1,2\n3,1,1\n4,1,1\n")
		s.wants("mended", "", "", "")
	},
	"a label that never comes": func(t *testing.T) {
		s := newStation(t, 5*time.Second, nil)
		s.hear(4, "")
		s.wants("within the wait", "b", "silent", "b: 0 used")
		s.hear(6, "")
		s.wants("after it", "b", "no_label", "no_label")
		s.hear(12, goodPayload)
		s.wants("mended", "", "", "no_label")
	},
	"a clock of 1970": func(t *testing.T) {
		s := newStation(t, 0, nil)
		s.hear(5, `{"t":7,"v":2}`)
		s.wants("at once", "b", "bad_time", "5 bad_time")
		s.hear(30, goodPayload)
		s.wants("mended", "", "", "5 bad_time")
	},
	"a full disk": func(t *testing.T) {
		s := newStation(t, 0, func(s *station) { s.full.Store(true) })
		s.hear(5, goodPayload)
		s.wants("at once", "", "storage", "no space left")
		s.full.Store(false)
		pass(ringWriteInterval)
		s.wants("mended", "", "", "")
	},
	"an old ring": func(t *testing.T) {
		s := newStation(t, 0, func(s *station) {
			r := record(t, s.env)
			r.recordReading(mixed[0])
			err := r.close()
			path := filepath.Join(s.env.RingFolder, "ring-000000000001.segment")
			p, failed := store.LocalDisk.ReadFile(path)
			if err = errors.Join(err, failed); err == nil {
				p[4] = 9
				err = store.LocalDisk.WriteFileDurably(path, p, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		})
		s.hear(0, "")
		s.wants("at once", "", "storage", "has format version 9")
		s.hear(5, goodPayload)
		s.wants("mended", "", "", "has format version 9")
		pass(damageReportDuration)
		s.hear(5, goodPayload)
		s.wants("later", "", "", "")
	},
}
