package sources

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/data/rows"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/spec"
)

// FuzzTimes checks that any text is either rejected or parsed as a time that is valid for a reading.
func FuzzTimes(f *testing.F) {
	f.Add("", "", "2026-03-01T12:30:00+01:00")
	f.Add("unix", "", "1772364600.25")
	f.Add("unix_ms", "UTC", "9223372036854")
	f.Add("02.01.2006 15:04:05", "Europe/Berlin", "29.03.2026 02:30:00")
	f.Add("2006-01-02 15:04 -0700", "", "2261-12-31 23:59 -2359")
	f.Add("rfc3339", "", "1969-12-31T23:59:59.9Z")
	f.Add("Jan _2 06 3PM", "Asia/Kathmandu", "Feb 30 26 13PM")
	f.Fuzz(func(t *testing.T, format, zone, text string) {
		of, err := newTimeFormat(format, zone)
		if err != nil {
			return
		}
		at, err := of.parseTime(text)
		if err == nil && (at < 0 || time.Unix(0, at).UTC().Year() > 2262) {
			t.Fatalf("%q in the format %q of %q is %d", text, format, zone, at)
		}
	})
}

// FuzzTopics checks that any configured columns are either rejected or valid topics, and that each value received is a
// reading that can be stored.
func FuzzTopics(f *testing.F) {
	f.Add("site/+/air fields.temperature", "site/hall/door", "timestamp", "unix", "site/1/air",
		`{"fields":{"temperature":21.5},"name":"modbus","timestamp":1772366400}`)
	f.Add("a/# x", "b", "", "", "a/b/c", `{"x":"NNE"}`)
	f.Add("site/x 0.v", "site/x 1", "2", "unix_ms", "site/x", `[{"v":true},1e999,"1772366400000"]`)
	f.Add("+ ", "#", "", "", "x", "12")
	f.Fuzz(func(t *testing.T, a, b, at, format, topic, payload string) {
		c := data.Config{Source: data.SourceMQTT, ColumnByInput: map[string]string{"a": a, "b": b}, TimeColumn: at,
			TimeFormat: format}
		var problems spec.ProblemList
		if CheckConfig(&c, &problems, "data"); problems.Err() != nil {
			return
		}
		all, err := parseTopicSubscriptions(&c)
		if err != nil {
			t.Fatal(err)
		}
		var got []data.Reading
		log := newSourceStats(time.Now, slog.New(slog.DiscardHandler))
		for i := range all {
			all[i].addReading, all[i].stats = func(r data.Reading) { got = append(got, r) }, log
		}
		heard := 0
		topicSubscriptions(all).forEachMatchingSubscription(topic, func(s *topicSubscription) {
			heard += len(s.columns)
			s.parsePayload([]byte(payload), payloadMeta{topic, topicHash(topic), arrival, false})
		})
		var e readingBatchEncoder
		for _, r := range got {
			if r.Time < rows.MinReadingTime || !e.addReading(r, 1<<20) {
				t.Fatalf("%+v", r)
			}
		}
		if len(got) > heard {
			t.Fatalf("%d readings of %d columns", len(got), heard)
		}
		for _, s := range all {
			if err := mqtt.CheckSubscriptionFilter(mqtt.AtMostOnce, s.topicFilter); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// FuzzLines checks that the output of a program yields the same readings, which can be stored, in whatever pieces it
// arrives.
func FuzzLines(f *testing.F) {
	f.Add([]byte("{\"time\":1772366400,\"a\":21.5,\"b\":\"N\"}\n{\"a\":\n"), false, true)
	f.Add([]byte("time,a,b\n1772366400,1,2\ntime,a,b\n1772366401,\"3\",x\n1,2\n"), true, true)
	f.Add([]byte("\ufeffa,b,a\r\n1,2,3\r\n"), true, false)
	f.Add(append(bytes.Repeat([]byte{'x'}, longestLine+1), "\n[1]\nnull\n7"...), false, false)
	f.Add([]byte("a\n\"1\n2\"\n"), true, false)
	f.Fuzz(func(t *testing.T, text []byte, csv, named bool) {
		c := data.Config{Source: data.SourceLines, LinesPath: "-", TimeColumn: "time"}
		if csv {
			c.LineFormat = "csv"
		}
		if named {
			c.ColumnByInput = map[string]string{"a": "a", "b": "b"}
		}
		columns, err := parsePayloadColumns(&c)
		if err != nil {
			t.Fatal(err)
		}
		clock, err := payloadTimeFieldFromConfig(&c)
		if err != nil {
			t.Fatal(err)
		}
		if !named {
			clock.path = nil
		}
		read := func(from io.Reader) (got []data.Reading) {
			l := &lineSource{linesAreCSV: csv, payloadParser: payloadParser{columns: columns, timeField: clock}}
			l.addReading, l.stats = func(r data.Reading) { got = append(got, r) }, newSourceStats(time.Now,
				slog.New(slog.DiscardHandler))
			if err := l.readLines(from, func() time.Time { return arrival }); err != nil {
				t.Fatal(err)
			}
			// Members of an object are read in any order.
			slices.SortStableFunc(got, func(a, b data.Reading) int { return strings.Compare(a.Input, b.Input) })
			return got
		}
		at, slowly := read(bytes.NewReader(text)), read(iotest.OneByteReader(bytes.NewReader(text)))
		if !same(slowly, at) {
			t.Fatalf("byte by byte %+v, at once %+v", slowly, at)
		}
		var e readingBatchEncoder
		for _, r := range at {
			if r.Time < rows.MinReadingTime || !e.addReading(r, 1<<20) {
				t.Fatalf("%+v", r)
			}
		}
	})
}

// FuzzCSVFeed checks that any file of readings yields rows of finite numbers, or an error with a place in the file. A
// file that grows line by line must yield the same rows as a file that is read at once.
func FuzzCSVFeed(f *testing.F) {
	f.Add("t,x,wd\n60,1,N\n120,2,S\n90,5,N\n180,NA,N\n240,7,?\n300,9,N\n", ",", "", "", "last", uint16(20))
	f.Add("\ufefft;x;wd\r\n01.03.2026 12:00;1,5;N\r\n01.03.2026 12:01;2,5;\"S\"\r\n01.03.2026 12:02;2;S\r\n", ";", ",",
		"02.01.2006 15:04", "skip", uint16(40))
	f.Add("x\tt\n1\t2026-03-01T12:00:00Z\n2\t2026-03-01T12:01:00Z\n3\t2026-03-01T12:03:00Z\n", "\t", ".", "rfc3339",
		"mean", uint16(5))
	f.Add("t,x\n9e18,1\n-1,2\n1e10,3\n60,4\n0,5\n", "", "", "unix", "refuse", uint16(8))
	recipe := spec.RowRecipe{Grid: spec.TimeGrid{Step: time.Minute, Lateness: 2 * time.Minute},
		Inputs: []spec.InputSeries{
			{Name: "x", ValidRange: []float64{-1e6, 1e6}}, {Name: "wd", Classes: []string{"N", "S"}}}}.WithDefaults()
	f.Fuzz(func(t *testing.T, text, delimiter, decimal, format, missing string, cut uint16) {
		h := &csvHarness{path: filepath.Join(t.TempDir(), "d.csv")}
		c := data.Config{CSVPath: h.path, TimeColumn: "t", TimeFormat: format, Delimiter: delimiter,
			DecimalSeparator:   decimal,
			MissingValuePolicy: grid.FillPolicy(missing), MaxUnusableShare: 0.99}
		if c.MissingValuePolicy == grid.FillLast {
			c.MaxLastValueAge = 3 * time.Minute
		}
		var problems spec.ProblemList
		if CheckConfig(&c, &problems, "data"); problems.Err() != nil {
			return
		}
		open := func() data.QueriedRows {
			s, err := Open(&c)
			if err != nil {
				t.Fatal(err)
			}
			return s.OpenRows(data.RowQuery{Features: []string{"x", "x lag 1m", "hour sin"}, Target: "x in 1m",
				Recipe: &recipe})
		}
		grown := open()
		if at := strings.LastIndexByte(text[:min(int(cut), len(text))], '\n') + 1; at > 0 {
			h.put(t, text[:at])
			_, _ = grown.Snapshot() // the snapshot may fail
		}
		h.put(t, text)
		got, errGrown := grown.Snapshot()
		want, err := open().Snapshot()
		if (err == nil) != (errGrown == nil) && !strings.Contains(text, `"`) {
			t.Fatalf("grown: %v; at once: %v", errGrown, err)
		}
		if bad := (*data.FileError)(nil); errors.As(err, &bad) && bad.Problem == "" {
			t.Fatalf("error %v", err)
		}
		if err != nil || errGrown != nil { // until more text arrives, a line break within quotes may split a line
			return
		}
		a, b := got.Rows.All(), want.Rows.All()
		if !slices.Equal(a.X, b.X) || !slices.Equal(a.Y, b.Y) ||
			!slices.Equal(timesOf(got), timesOf(want)) {
			if !strings.Contains(text, `"`) {
				t.Fatalf("grown %v %v, at once %v %v", a.X, a.Y, b.X, b.Y)
			}
		}
		for _, v := range slices.Concat(b.X, b.Y) {
			if !data.IsFinite(float64(v)) {
				t.Fatalf("value %v", v)
			}
		}
	})
}
