package sources

import (
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/data/payload"
	"github.com/fedmesh/fedmesh/data/rows"
)

// arrival is the time at which the payloads of tests arrive.
var arrival = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// taken contains the readings and the rejections that result from a payload.
type taken struct {
	readings []data.Reading
	unused   map[string]data.UnusedReason // reason for rejecting a value, by input
}

func take(t testing.TB, columns map[string]string, at payloadTimeField, text string, arrived time.Time) (got taken) {
	t.Helper()
	log := newSourceStats(time.Now, slog.New(slog.DiscardHandler))
	decoder := payload.NewDecoder(payload.FormatJSON, payload.Options{Clock: at.field()})
	if len(columns) == 1 && slices.Contains(slices.Collect(maps.Values(columns)), "") {
		decoder = payload.NewDecoder(payload.FormatPlain, payload.Options{})
	}
	p := payloadParser{decoder: decoder, timeField: at, stats: log, addReading: func(r data.Reading) {
		got.readings = append(got.readings,
			r)
	}}
	for _, input := range slices.Sorted(maps.Keys(columns)) {
		of, err := payload.ParsePath(columns[input])
		if err != nil {
			t.Fatal(err)
		}
		p.columns = append(p.columns, payloadColumn{input: input, Column: payload.Column{Path: of}})
	}
	p.parsePayload([]byte(text), payloadMeta{place: "here", receivedAt: arrived})
	slices.SortFunc(got.readings, func(a, b data.Reading) int { return strings.Compare(a.Input, b.Input) })
	for _, c := range log.columnReports() {
		for why, n := range c.Unused {
			if n != 1 || c.LastUnusedWhere != "here" || got.unused[c.Name] != "" {
				t.Errorf("column %+v", c)
			}
			if got.unused == nil {
				got.unused = map[string]data.UnusedReason{}
			}
			got.unused[c.Name] = why
		}
	}
	return got
}

func TestPayloads(t *testing.T) {
	plain, two := map[string]string{"a": ""}, map[string]string{"a": "x.v", "b": "s.1"}
	stamped := payloadTimeField{path: payload.MemberPath("t")}
	at := arrival.UnixNano()
	number := func(input string, v float64) data.Reading {
		return data.Reading{Input: input, Time: at, Value: v}
	}
	text := func(input, text string) data.Reading {
		return data.Reading{Input: input, Time: at, Text: text, Value: numberFromText(text)}
	}
	for _, tt := range []struct {
		name    string
		columns map[string]string
		clock   payloadTimeField
		text    string
		want    []data.Reading
		unused  map[string]data.UnusedReason
	}{
		{"a number", plain, payloadTimeField{}, " 21.5\n", []data.Reading{number("a", 21.5)}, nil},
		{"a text", plain, payloadTimeField{}, "NNE", []data.Reading{text("a", "NNE")}, nil},
		{"a text in quotes", plain, payloadTimeField{}, `"NNE"`, []data.Reading{text("a", "NNE")}, nil},
		{"a truth value", plain, payloadTimeField{}, "true", []data.Reading{text("a", "true")}, nil},
		{"nothing", plain, payloadTimeField{}, " ", nil, map[string]data.UnusedReason{"a": grid.ReasonMissing}},
		{"JSON where a value is wanted", plain, payloadTimeField{}, `{"v":1}`, nil,
			map[string]data.UnusedReason{"a": grid.ReasonNotANumber}},
		{"too large", plain, payloadTimeField{}, "1e999", nil, map[string]data.UnusedReason{"a": grid.ReasonNotFinite}},
		{"infinite", plain, payloadTimeField{}, "-Inf", nil, map[string]data.UnusedReason{"a": grid.ReasonNotFinite}},
		{"a word for no value", plain, payloadTimeField{}, "NaN", []data.Reading{{Input: "a",
			Time: arrival.UnixNano(), Text: "NaN", Value: math.NaN()}}, nil},
		{"JSON", two, payloadTimeField{}, `{"x":{"v":1.5},"s":[1,"N"]}`, []data.Reading{number("a", 1.5), text("b",
			"N")}, nil},
		{"numbers in texts", two, payloadTimeField{}, `{"x":{"v":"1.5"},"s":[0,"1e999"]}`, []data.Reading{text("a",
			"1.5")},
			map[string]data.UnusedReason{"b": grid.ReasonNotFinite}},
		{"missing, and null", two, payloadTimeField{}, `{"s":[1,null]}`, nil,
			map[string]data.UnusedReason{"a": grid.ReasonMissing, "b": grid.ReasonMissing}},
		{"an object, and a long text", two, payloadTimeField{}, `{"x":{"v":{}},"s":[1,"` + strings.Repeat("x", 256) +
			`"]}`, nil,
			map[string]data.UnusedReason{"a": grid.ReasonNotANumber, "b": grid.ReasonNotANumber}},
		{"an index that is none", two, payloadTimeField{}, `{"x":[],"s":[1]}`, nil,
			map[string]data.UnusedReason{"a": grid.ReasonMissing, "b": grid.ReasonMissing}},
		{"half of JSON", two, payloadTimeField{}, `{"x":{"v":1.5`, nil,
			map[string]data.UnusedReason{"a": grid.ReasonMalformed, "b": grid.ReasonMalformed}},
		{"two values", two, payloadTimeField{}, `{"x":{"v":1.5}} {}`, nil,
			map[string]data.UnusedReason{"a": grid.ReasonMalformed, "b": grid.ReasonMalformed}},
		{"the payload's time", plain2, stamped, `{"t":"2026-03-01T11:00:00Z","v":1}`,
			[]data.Reading{{Input: "a", Time: arrival.Add(-time.Hour).UnixNano(), Value: 1}}, nil},
		{"the payload's time in seconds", plain2, stamped, `{"t":1772366400.5,"v":1}`,
			[]data.Reading{{Input: "a", Time: arrival.UnixNano() + 5e8, Value: 1}}, nil},
		{"no time", plain2, stamped, `{"v":1}`, nil, map[string]data.UnusedReason{"a": grid.ReasonBadTime}},
		{"a time that is none", plain2, stamped, `{"t":"noon","v":1}`, nil,
			map[string]data.UnusedReason{"a": grid.ReasonBadTime}},
		{"a clock of 1970", plain2, stamped, `{"t":86400,"v":1}`, nil,
			map[string]data.UnusedReason{"a": grid.ReasonBadTime}},
		{"the future", plain2, stamped, `{"t":"2026-03-01T12:05:01Z","v":1}`, nil,
			map[string]data.UnusedReason{"a": grid.ReasonFutureTime}},
		{"nearly the future", plain2, stamped, `{"t":"2026-03-01T12:05:00Z","v":1}`,
			[]data.Reading{{Input: "a", Time: arrival.Add(5 * time.Minute).UnixNano(), Value: 1}}, nil},
		{"members", nil, stamped, `{"t":1772366400,"b":2,"a":"N","c":null,"d":{},"e":[1]}`,
			[]data.Reading{text("a", "N"), number("b", 2)}, nil},
		{"no object", nil, stamped, `{"t":1772366400`, nil, map[string]data.UnusedReason{"": grid.ReasonMalformed}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := take(t, tt.columns, tt.clock, tt.text, arrival)
			if !same(got.readings, tt.want) || !maps.Equal(got.unused, tt.unused) {
				t.Errorf("%+v, %v; want %+v, %v", got.readings, got.unused, tt.want, tt.unused)
			}
		})
	}
}

var plain2 = map[string]string{"a": "v"}

// TestPayloadsOfADeviceOf1970 checks that a device whose clock is not set accepts only payloads that contain a time.
func TestPayloadsOfADeviceOf1970(t *testing.T) {
	early := time.Unix(100, 0)
	if got := take(t, plain2, payloadTimeField{path: payload.MemberPath("t")}, `{"t":1772366400,"v":1}`,
		early); len(got.readings) != 1 {
		t.Errorf("%+v", got)
	}
	if got := take(t, plain2, payloadTimeField{}, `{"v":1}`, early); len(got.readings) != 0 ||
		got.unused["a"] != grid.ReasonBadTime {
		t.Errorf("%+v", got)
	}
}

func TestTimeFormats(t *testing.T) {
	want := time.Date(2026, 3, 1, 11, 30, 0, 0, time.UTC).UnixNano()
	for _, tt := range []struct{ format, zone, text string }{
		{"", "", "2026-03-01T12:30:00+01:00"}, {"", "", "1772364600"}, {"rfc3339", "", "2026-03-01T11:30:00Z"},
		{"unix", "", "1772364600.0"}, {"unix_ms", "", "1772364600000"}, {"2006-01-02 15:04", "", "2026-03-01 11:30"},
		{"02.01.2006 15:04:05", "Europe/Berlin", "01.03.2026 12:30:00"},
		{"2006-01-02 15:04 -0700", "Europe/Berlin", "2026-03-01 11:30 +0000"},
	} {
		f, err := newTimeFormat(tt.format, tt.zone)
		if err != nil {
			t.Fatal(err)
		}
		if at, err := f.parseTime(tt.text); err != nil || at != want {
			t.Errorf("%+v: %d, %v; want %d", tt, at, err, want)
		}
		for _, bad := range []string{"", "noon", "-1", "1e30", "NaN", "2300-01-01 00:00", "1600-01-01 00:00"} {
			if at, err := f.parseTime(bad); err == nil {
				t.Errorf("%+v: %q is %d", tt, bad, at)
			}
		}
	}
	for _, bad := range [][2]string{{"iso", ""}, {"15:04", ""}, {"", "Berlin"}, {"2006-01 15:04", ""}} {
		if _, err := newTimeFormat(bad[0], bad[1]); err == nil {
			t.Errorf("%q is a format", bad)
		}
	}
}

// TestOneBadMember checks that an invalid JSON value, or a control character in a string, does not affect the values of
// other inputs in the payload.
func TestOneBadMember(t *testing.T) {
	columns := map[string]string{"temp": "t", "hum": "h"}
	hum := data.Reading{Input: "hum", Time: arrival.UnixNano(), Value: 50}
	temp := func(text string, v float64) []data.Reading {
		return []data.Reading{hum, {Input: "temp", Time: arrival.UnixNano(), Text: text, Value: v}}
	}
	for text, tt := range map[string]struct {
		readings []data.Reading
		unused   map[string]data.UnusedReason
	}{
		`{"t":-nan(ind),"h":50}`: {[]data.Reading{hum},
			map[string]data.UnusedReason{"temp": grid.ReasonMissing}},
		`{"t":1.#QNAN,"h":50}`: {[]data.Reading{hum},
			map[string]data.UnusedReason{"temp": grid.ReasonMissing}},
		`{"t":-1.#INF,"h":50}`: {[]data.Reading{hum},
			map[string]data.UnusedReason{"temp": grid.ReasonNotFinite}},
		`{"t":"1.#IND","h":50}`: {temp("1.#IND", math.NaN()), nil},
		`{"t":0x1F,"h":50}`:     {temp("0x1F", math.NaN()), nil},
		`{"t":021.5,"h":50}`:    {temp("021.5", 21.5), nil},
		`{"t":{"v":1},"h":50}`: {[]data.Reading{hum},
			map[string]data.UnusedReason{"temp": grid.ReasonNotANumber}},
		"{\"t\":20,\"h\":50,\"n\":\"a\x01b\"}":  {temp("", 20), nil},
		"\ufeff{\"t\":20,\"h\":50}":             {temp("", 20), nil},
		`{"t":20,"h":50,"path":"C:\data\2026"}`: {temp("", 20), nil},
	} {
		got := take(t, columns, payloadTimeField{}, text, arrival)
		if !same(got.readings, tt.readings) || !maps.Equal(got.unused, tt.unused) {
			t.Errorf("%q: %+v, %v; want %+v, %v", text, got.readings, got.unused, tt.readings, tt.unused)
		}
	}
}

// FuzzPayload checks that any payload yields, for each input, exactly one reading that can be stored, or one reason for
// rejection.
func FuzzPayload(f *testing.F) {
	f.Add("x.v", "t", `{"x":{"v":1},"t":5}`)
	f.Add("", "", "12")
	f.Add("0", "1", `[1,"2026-03-01T11:30:00Z"]`)
	f.Add(`a\.b`, "", `{"a.b":{"a.b":"\u0000"}}`)
	f.Fuzz(func(t *testing.T, of, at, text string) {
		p, err := payload.ParsePath(of)
		var c payloadTimeField
		if err == nil {
			c.path, err = payload.ParsePath(at)
		}
		if err != nil {
			return
		}
		for _, columns := range []map[string]string{{"a": of}, {"a": of, "b": of}, nil} {
			got := take(t, columns, c, text, arrival)
			n := len(got.readings) + len(got.unused)
			if len(columns) > 0 && n != len(columns) && !plainTwice(p, columns) {
				t.Errorf("%+v of %q", got, columns)
			}
			var e readingBatchEncoder
			for _, r := range got.readings {
				if r.Time < rows.MinReadingTime || r.Text == "" && !data.IsFinite(r.Value) || !e.addReading(r, 1<<20) {
					t.Errorf("reading %+v", r)
				}
			}
			var back []data.Reading
			err := decodeReadingBatch(e.body, 0, func(r data.Reading) { back = append(back, r) })
			if err != nil || !same(back, got.readings) {
				t.Errorf("%v: %+v became %+v", err, got.readings, back)
			}
		}
	})
}

// plainTwice reports whether several inputs have an empty path. Such inputs have separate subscriptions, so that no
// payload contains values of more than one of them.
func plainTwice(p payload.Path, columns map[string]string) bool {
	return len(p) == 0 && len(columns) > 1
}
