package sources

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/data/payload"
	"github.com/fedmesh/fedmesh/data/rows"
	"github.com/fedmesh/fedmesh/data/survey"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
)

// manualSource is a source whose payloads a test delivers directly.
type manualSource struct{ payloadParser }

func (manualSource) probe() error { return nil }

func (b *manualSource) beginIntake(r *readingRecorder) (end func() error, err error) {
	b.addReading, b.stats = r.recordReading, r.stats
	for _, c := range b.columns {
		b.stats.expectInput(c.input, " from topic t")
	}
	return func() error { return nil }, nil
}

// liveHarness runs a source on the simulated clock of synctest. The clock of its device may be wrong.
type liveHarness struct {
	*manualSource
	t      *testing.T
	config data.Config
	want   data.RowQuery
	env    data.CollectorEnv
	ahead  atomic.Int64 // nanoseconds by which the device's clock is ahead
	stream *collectorSource
	rows   data.QueriedRows
}

// harnessStart is the time at which the stream of a liveHarness starts.
var harnessStart = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

func newLiveHarness(t *testing.T, c data.Config, w data.RowQuery, columns map[string]string) *liveHarness {
	t.Helper()
	l := &liveHarness{t: t, config: c, want: w, manualSource: &manualSource{}, env: envAt(t.TempDir())}
	for _, input := range slices.Sorted(maps.Keys(columns)) {
		p, err := payload.ParsePath(columns[input])
		if err != nil {
			t.Fatal(err)
		}
		l.columns = append(l.columns, payloadColumn{input: input, Column: payload.Column{Path: p}})
	}
	of, err := payloadTimeFieldFromConfig(&c)
	if err != nil {
		t.Fatal(err)
	}
	l.timeField = of
	l.decoder = payload.NewDecoder(payload.FormatJSON, payload.Options{Clock: of.field()})
	began := time.Now()
	l.env.Now = func() time.Time { return harnessStart.Add(time.Since(began)).Add(time.Duration(l.ahead.Load())) }
	l.start()
	return l
}

func (l *liveHarness) start() {
	l.t.Helper()
	l.stream = &collectorSource{intake: l.manualSource, rules: rows.ValueRulesFromConfig(&l.config, nil),
		rowStorage: rows.StorageSettingsFromConfig(&l.config)}
	if err := l.stream.Start(l.env); err != nil {
		l.t.Fatal(err)
	}
	l.rows = l.stream.OpenRows(l.want)
}

func (l *liveHarness) restart() {
	l.t.Helper()
	if err := l.stream.Close(); err != nil {
		l.t.Fatal(err)
	}
	l.start()
}

// deliver delivers a payload as if it had arrived on a topic.
func (l *liveHarness) deliver(topic, text string) {
	l.parsePayload([]byte(text), payloadMeta{topic, topicHash(topic), l.env.Now(), false})
}

// compareWithCheck checks that the agent and `agentd data check` make the same rows and counts from the same ring of
// readings.
func (l *liveHarness) compareWithCheck() (data.RowSnapshot, data.QualityReport, error) {
	l.t.Helper()
	pass(ringWriteInterval)
	view, err := l.rows.Snapshot()
	report := l.rows.(data.QualityReporter).QualityReport()
	c := l.config
	c.Source = data.SourceLines
	stored, storedErr := OpenStoredSource(&c, store.LocalDisk, l.env.RingFolder)
	if storedErr != nil {
		l.t.Fatal(storedErr)
	}
	stored.(*storedRing).rules.Now = l.env.Now
	made, checkErr := survey.DescribeRows(stored, l.want)
	if (err == nil) != (checkErr == nil) || err == nil && view.Rows.Len() != made.Snapshot.Rows.Len() {
		l.t.Errorf("the agent has %v, %v; the check %v, %v", view, err, made.Snapshot, checkErr)
	}
	if report.LargestWrongShare != made.QualityReport.LargestWrongShare {
		l.t.Errorf("of the agent %v cannot be used, by the check %v: %v; %v", report.LargestWrongShare,
			made.QualityReport.LargestWrongShare, report,
			made.QualityReport)
	}
	return view, report, err
}

func (l *liveHarness) end() {
	if err := l.stream.Close(); err != nil {
		l.t.Error(err)
	}
}

// everyMinute returns a query for rows with a time step of one minute and the temperature one minute ahead as target.
func everyMinute(join spec.Resampling) data.RowQuery {
	r := spec.RowRecipe{Grid: spec.TimeGrid{Step: time.Minute}, Inputs: []spec.InputSeries{{Name: "temp",
		Resampling: join},
		{Name: "hum"}}}.WithDefaults()
	return data.RowQuery{Features: []string{"temp"}, Target: "temp in 1m", Recipe: &r}
}

// TestDeviceClockAhead checks a device whose clock is ahead by nine years for six seconds. The readings of these
// seconds must be rejected and all others used, immediately and after a restart.
func TestDeviceClockAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLiveHarness(t, data.Config{}, everyMinute(""), map[string]string{"temp": "t", "hum": "h"})
		defer func() { l.end() }()
		// The wrong times must not cause the removal of readings from the ring either.
		l.env.RingLimits.MaxAge = time.Hour
		l.restart()
		send := func(minutes int) {
			for range minutes {
				pass(time.Minute)
				l.deliver("site", `{"t":20,"h":50}`)
			}
		}
		send(20)
		if _, _, err := l.compareWithCheck(); err != nil {
			t.Fatal(err)
		}
		l.ahead.Store(int64(9 * 365 * 24 * time.Hour))
		for range 6 {
			pass(time.Second)
			l.deliver("site", `{"t":20,"h":50}`)
		}
		if _, _, err := l.compareWithCheck(); err != nil { // while the clock is wrong, the readings look correct
			t.Error(err)
		}
		l.ahead.Store(0)
		send(20)
		for _, restart := range []bool{false, true} {
			if restart {
				l.restart()
			}
			view, report, err := l.compareWithCheck()
			c := report.EnsureColumn("temp")
			if err != nil || view.Rows.Len() < 37 || c.Unused[grid.ReasonFutureTime] != 6 ||
				c.Unused[grid.ReasonLate] != 0 {
				t.Errorf("restart %t: %+v, %v, %v", restart, view.Rows, report, err)
			}
			if newest := time.Unix(0, c.NewestTime); newest.After(l.env.Now()) {
				t.Errorf("restart %t: the newest is of %v", restart, newest)
			}
		}
	})
}

// TestThreeMeters checks three meters under a wildcard topic that send values in the same second. The values of all
// three must be used, in any order of arrival. A duplicate must be used once.
func TestThreeMeters(t *testing.T) {
	for join, want := range map[spec.Resampling]float32{spec.ResampleSum: 60, spec.ResampleCount: 3,
		spec.ResampleMean: 20,
		spec.ResampleMax:  30} {
		synctest.Test(t, func(t *testing.T) {
			l := newLiveHarness(t, data.Config{TimeColumn: "at"}, everyMinute(join), map[string]string{"temp": "v",
				"hum": "v"})
			defer func() { l.end() }()
			meters := []string{"site/north 10", "site/south 20", "site/west 30", "site/south 20"}
			for n := range 20 {
				pass(time.Minute)
				at := l.env.Now().Truncate(time.Minute).Format(time.RFC3339)
				for k := range meters {
					topic, v, _ := strings.Cut(meters[(k+n)%len(meters)], " ")
					l.deliver(topic, fmt.Sprintf(`{"at":%q,"v":%s}`, at, v))
				}
			}
			for _, restart := range []bool{false, true} {
				if restart {
					l.restart()
				}
				view, report, err := l.compareWithCheck()
				if err != nil || view.Rows.Len() < 17 ||
					report.EnsureColumn("temp").Unused[grid.ReasonDuplicate] == 0 ||
					slices.ContainsFunc(view.Rows.All().X, func(x float32) bool { return x != want }) {
					t.Fatalf("%s, restart %t: %v, %v, %v; want %v", join, restart, view.Rows.All(), report, err, want)
				}
			}
		})
	}
}

// TestMissingInPayloads checks that a missing value in a payload does not affect other inputs, and that the device
// continues to participate in training.
func TestMissingInPayloads(t *testing.T) {
	for _, none := range []string{`NaN`, `nan`, `-nan`, `null`, `None`, `"nan"`, `"unavailable"`, `"unknown"`, `"None"`,
		`"NA"`, `""`, `-9999`, `-9999.0`, `"offline"`} {
		synctest.Test(t, func(t *testing.T) {
			w := everyMinute("")
			w.Features = []string{"hum"}
			w.Target = "hum in 1m"
			w.Recipe.Inputs[1].ValidRange = []float64{0, 100}
			l := newLiveHarness(t, data.Config{MissingValues: []data.UnquotedYAMLText{"-9999", "offline"}}, w,
				map[string]string{"temp": "t", "hum": "h"})
			defer func() { l.end() }()
			for n := range 60 {
				pass(time.Minute)
				value := "20.5"
				if n%3 == 0 {
					value = none
				}
				l.deliver("esp", fmt.Sprintf(`{"t":%s,"h":60.0}`, value))
			}
			view, report, err := l.compareWithCheck()
			missing := report.EnsureColumn("temp").Unused[grid.ReasonMissing] +
				l.stats.columnReports()[1].Unused[grid.ReasonMissing]
			if err != nil || view.Rows.Len() < 57 || report.EnsureColumn("hum").Used < 59 || missing != 20 ||
				report.LargestWrongShare != 0 {
				t.Errorf("%s: %v, %v; %v", none, view.Rows, err, report)
			}
		})
	}
}

// TestAClassMayBeNA checks that a text for missing values which is also the name of a class means this class, and that
// 1.0 means the class 1.
func TestAClassMayBeNA(t *testing.T) {
	for value, want := range map[string]string{`"NA"`: "1 used, 1 missing", `"unknown"`: "0 used, 2 missing",
		`1.0`: "1 used, 1 missing", `"1.0"`: "1 used, 1 missing", `1`: "1 used, 1 missing",
		// the last message of each case has no value
		`"2"`: "0 used, 1 missing, 1 unknown_class", `NaN`: "0 used, 2 missing"} {
		synctest.Test(t, func(t *testing.T) {
			w := everyMinute("")
			r := spec.RowRecipe{Grid: spec.TimeGrid{Step: time.Minute}, Inputs: []spec.InputSeries{
				{Name: "temp", Classes: []string{"NA", "1"}}, {Name: "hum"}}}.WithDefaults()
			w.Recipe = &r
			w.Features, w.Target = []string{"temp = NA"}, ""
			l := newLiveHarness(t, data.Config{}, w, map[string]string{"temp": "t", "hum": "h"})
			defer func() { l.end() }()
			pass(time.Minute)
			l.deliver("esp", fmt.Sprintf(`{"t":%s}`, value))
			pass(time.Minute)
			l.deliver("esp", `{"h":1}`)
			pass(ringWriteInterval)
			if _, err := l.rows.Snapshot(); err != nil && !strings.Contains(err.Error(), "no rows can be built yet") {
				t.Fatal(err)
			}
			report := l.rows.(data.QualityReporter).QualityReport()
			if got := report.EnsureColumn("temp").String(); got != want {
				t.Errorf("%s: %s, want %s", value, got, want)
			}
		})
	}
}

// TestPayloadsOfPrograms checks that NUL bytes, white space and a byte order mark around a payload are ignored. If a
// payload cannot be read, its text must be reported.
func TestPayloadsOfPrograms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLiveHarness(t, data.Config{TimeColumn: "ts"}, everyMinute(""), map[string]string{"temp": "t",
			"hum": "h"})
		defer func() { l.end() }()
		good := `{"ts":"2026-03-01T00:00:00Z","t":20.1,"h":50}`
		for _, text := range []string{good + "\x00", good + "\x00\x00 \r\n", "\ufeff" + good, "\x00" + good} {
			l.deliver("esp/bme", text)
		}
		if c := l.stats.columnReports()[0]; c.Used != 4 {
			t.Errorf("%+v", c)
		}
		for text, want := range map[string]string{
			"{'t': 1}": "invalid character '\\'' looking for beginning of object key string: `{'t': 1}`",
			good + "x": "unexpected text after the JSON value: …`00:00Z\",\"t\":20.1,\"h\":50}x`",
			`{"t":1`:   "the JSON value is incomplete: `{\"t\":1`",
			`{"t":1}`:  `no time found at the JSON path "ts"`,
			`{"ts":"01.03.2026 12:00","t":1}`: `"01.03.2026 12:00" is not a time in the format 2026-03-01T12:00:00Z ` +
				`or in seconds since 1970: ` +
				`set data.time_format to "02.01.2006 15:04"`,
			`{"ts":1772366400000,"t":1}`: `set data.time_format to "unix_ms"`,
			`{"ts":1772366400000000000}`: `set data.time_format to "unix_ns"`,
			`{"ts":86400,"t":1,"h":1}`:   "1970-01-02T00:00:00Z is before the year 2000",
			"\xff\xfe":                   "`ÿþ`",
		} {
			l.deliver("esp/bme", text)
			if got := l.stats.columnReports()[0].LastUnusedProblem; !strings.Contains(got, want) {
				t.Errorf("%q: %s, want %s", text, got, want)
			}
		}
	})
}

// TestReasonFollows checks that a device declines to participate as soon as its newest values are wrong, and
// participates again when valid values arrive.
func TestReasonFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLiveHarness(t, data.Config{TimeColumn: "ts"}, everyMinute(""), map[string]string{"temp": "t",
			"hum": "h"})
		defer func() { l.end() }()
		reason := func(want, text string) {
			t.Helper()
			if !l.rows.Changed() {
				t.Error("nothing has changed")
			}
			_, _, err := l.compareWithCheck()
			bad := (*data.FileError)(nil)
			if !errors.As(err, &bad) || bad.ReasonCode != want || !strings.Contains(bad.Problem, text) ||
				strings.Contains(bad.Problem, "no readings received") != (want == string(data.TroubleSilent)) {
				t.Errorf("%v, want %s and %q", err, want, text)
			}
		}
		if _, _, err := l.compareWithCheck(); err == nil || !strings.Contains(err.Error(),
			"no readings received since") {
			t.Error(err)
		}
		for range 40 {
			l.deliver("esp", `{"ts":"2026-03-01T00:00:00Z","t":20`)
		}
		reason("malformed", "the received values cannot be used: esp: the JSON value is incomplete: "+
			"…`-03-01T00:00:00Z\",\"t\":20`")
		for range 100 {
			l.deliver("esp", `{"t":20}`)
		}
		reason("bad_time", `no time found at the JSON path "ts"`)
		for n := range 200 {
			pass(time.Minute)
			l.deliver("esp", fmt.Sprintf(`{"ts":%d,"t":20,"h":%d}`, l.env.Now().Unix(), n))
		}
		if view, report, err := l.compareWithCheck(); err != nil || view.Rows.Len() < 195 {
			t.Error(view, report, err)
		}
	})
}
