package payload

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/fedmesh/fedmesh/data/sparkplug"
	"google.golang.org/protobuf/encoding/protowire"
)

// arrivalTime is the time at which the messages of the tests arrive.
var arrivalTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// example is a message of a format, with a column and the readings that the column selects.
type example struct {
	topic, payload, column string
	want                   string // readings as text; see readingsText
	// isDelimited means that every payload that is cut short must be rejected.
	isDelimited bool
}

// examples contains an example of each format.
var examples = map[string]example{
	FormatPlain: {"site/air", " 21.5\n", "", "=21.5", false},
	FormatJSON: {"site/air", `{"time":1772366400,"sensors":[{"id":"a","v":21.5},{"id":"b","v":null}]}`,
		"sensors[id=a].v", "=21.5@12:00:00", true},
	// {"time": 1772366400, "sensors": [{"id": 4, "v": 21.5}]}
	FormatCBOR: {"site/air", fromHex("a26474696d651a69a42a406773656e736f727381a26269640461" + "76f94d60"),
		"sensors[id=4].v", "=21.5@12:00:00", true},
	FormatSenML: {"site/air", `[{"bn":"urn:dev:a:","bt":1772366400,"bu":"Cel","n":"t","v":21.5},` +
		`{"n":"t","t":5,"v":22},{"n":"door","vb":true,"u":""}]`, "urn:dev:a:t[unit=Cel]",
		"urn:dev:a:t=21.5Cel@12:00:00 urn:dev:a:t=22Cel@12:00:05", true},
	FormatInflux: {"telegraf/a", "air,host=a t=21.5,n=3i,on=true,s=\"x y\" 1772366400000000000\nair,host=b t=22\n",
		"t", "t=21.5@12:00:00 t=22", false},
	FormatOPCUA: {"plant/a", `{"MessageType":"ua-data","Messages":[{"DataSetWriterId":7,"Timestamp":` +
		`"2026-03-01T12:00:00Z","Payload":{"T":{"Value":21.5},"P":{"Value":1,"Status":{"Code":2147483648}}}},` +
		`{"DataSetWriterId":8,"Payload":{"T":22}}]}`, "T[writer=7]", "T=21.5@12:00:00", true},
	FormatSparkplug: {"spBv1.0/plant/DDATA/edge/pump", string(encodeSparkplug(3, 1772366400000,
		sparkplug.Metric{Name: "Inputs/A", DataType: 9, ValueField: sparkplug.FieldFloat, Bits: 0x41ac0000})),
		"Inputs/A", "Inputs/A=21.5@12:00:00", false},
}

func fromHex(text string) string {
	b, err := hex.DecodeString(text)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// encodeSparkplug encodes a payload. It has no number if seq is above 255.
func encodeSparkplug(seq, timestamp uint64, metrics ...sparkplug.Metric) []byte {
	p := sparkplug.Payload{Timestamp: timestamp, Seq: seq, HasSeq: seq <= 255, Metrics: metrics}
	return p.Encode()
}

// testOptions reads times in seconds since 1970 from the member time.
var testOptions = Options{Clock: TimeField{Path: MemberPath("time"), IsOptional: true,
	Parse: func(text string) (int64, error) {
		seconds, err := strconv.ParseInt(text, 10, 32)
		return seconds * 1e9, err
	}}}

// decode decodes a message with a new decoder of a format, and checks the content.
func decode(t testing.TB, name, topic string, payload []byte) (Content, error) {
	t.Helper()
	m := Message{Topic: topic, Payload: payload, ReceivedAt: arrivalTime}
	c, err := NewDecoder(name, testOptions).Decode(m)
	checkContent(t, name, &c, err)
	return c, err
}

// checkContent checks the rules that the result of every decoder must satisfy.
func checkContent(t testing.TB, name string, c *Content, err error) {
	t.Helper()
	if err != nil {
		if text := err.Error(); text == "" || strings.Contains(text, "\n") || !utf8.ValidString(text) {
			t.Fatalf("%s: invalid error text %q", name, text)
		}
		if c.isTree || c.readings != nil {
			t.Fatalf("%s: content %+v with the error %v", name, c, err)
		}
		return
	}
	for _, r := range append(c.Members(), c.readings...) {
		switch v := r.Value.(type) {
		case json.Number:
			if n, err := strconv.ParseFloat(string(v), 64); n != n || err != nil && !errors.Is(err, strconv.ErrRange) {
				t.Fatalf("%s: %q is not a number", name, v)
			}
		case string, bool, nil, unusableValue, map[string]any, []any:
		default:
			t.Fatalf("%s: value of type %T", name, v)
		}
		if !c.isTree && (!utf8.ValidString(r.Name) || !utf8.ValidString(r.Unit)) {
			t.Fatalf("%s: reading %+v is not valid UTF-8", name, r)
		}
	}
}

// readingsText returns readings as text: NAME=VALUE UNIT @TIME, without spaces, separated by a space.
func readingsText(all []Reading) string {
	var texts []string
	for _, r := range all {
		text := r.Name + "=" + ValueText(r.Value) + r.Unit
		if r.HasTime {
			text += "@" + time.Unix(0, r.Time).UTC().Format(time.TimeOnly)
		}
		if r.Availability != "" {
			text = r.Topic + " " + string(r.Availability)
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, " ")
}

// selected returns the readings that a column of a format selects, as text.
func selected(t testing.TB, name, column string, c *Content) string {
	t.Helper()
	of, err := ParseColumn(name, column)
	if err != nil {
		t.Fatal(err)
	}
	return readingsText(c.Select(&of))
}

// TestFormats is the conformance suite of all formats.
func TestFormats(t *testing.T) {
	for _, name := range Formats() {
		e, found := examples[name]
		if !found {
			t.Fatalf("format %s has no example", name)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Run("example", func(t *testing.T) {
				c, err := decode(t, name, e.topic, []byte(e.payload))
				if err != nil {
					t.Fatal(err)
				}
				if got := selected(t, name, e.column, &c); got != e.want {
					t.Errorf("%q, want %q", got, e.want)
				}
				again, _ := decode(t, name, e.topic, []byte(e.payload))
				if !reflect.DeepEqual(c.tree, again.tree) || !reflect.DeepEqual(c.readings, again.readings) {
					t.Errorf("decoded twice: %+v and %+v", c, again)
				}
			})
			t.Run("payload unchanged", func(t *testing.T) {
				text := []byte(e.payload)
				_, _ = decode(t, name, e.topic, text)
				if string(text) != e.payload {
					t.Errorf("the payload was changed to %q", text)
				}
			})
			t.Run("truncation", func(t *testing.T) {
				for n := range len(e.payload) {
					if c, err := decode(t, name, e.topic, []byte(e.payload[:n])); err == nil && e.isDelimited {
						t.Errorf("the first %d bytes are decoded as %+v", n, c)
					}
				}
			})
			t.Run("wrong types", func(t *testing.T) { rejectsWrongTypes(t, name, e) })
			t.Run("nesting", func(t *testing.T) {
				const depth = 200_000
				for _, unit := range []string{"[", `{"a":`, `[{"v":`, `{"Payload":`, "\x81", "\xa1\x61a", "\xc6",
					"\x12\x7f", "("} {
					_, _ = decode(t, name, e.topic, []byte(strings.Repeat(unit, depth)))
				}
				nested := []byte{}
				for range 2_000 {
					nested = protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), nested)
				}
				_, _ = decode(t, name, e.topic, nested)
			})
			t.Run("10 MB", func(t *testing.T) {
				size := 10 << 20
				if testing.Short() {
					size = 1 << 20
				}
				for _, text := range []string{strings.Repeat("\xff", size), "[" + strings.Repeat("1,", size/10) + "1]",
					strings.Repeat(e.payload, size/len(e.payload))} {
					_, _ = decode(t, name, e.topic, []byte(text))
				}
				for _, unit := range []string{"x", "9", "c,d=", "\x80", "a b=1\n"} {
					_, _ = decode(t, name, e.topic, []byte("a=1,b="+strings.Repeat(unit, size/10)))
				}
			})
			t.Run("invalid UTF-8", func(t *testing.T) {
				for i := range len(e.payload) {
					for _, b := range []byte{0, 0x80, 0xff} {
						text := []byte(e.payload)
						text[i] = b
						_, _ = decode(t, name, e.topic, text)
					}
				}
			})
			t.Run("column", func(t *testing.T) {
				if _, err := ParseColumn(name, ""); (err == nil) != formatByName(name).isTree {
					t.Errorf("a column without a name: %v", err)
				}
			})
		})
	}
	if len(examples) != len(formats) {
		t.Errorf("%d examples of %d formats", len(examples), len(formats))
	}
}

// rejectsWrongTypes checks that payloads with values of a wrong type are rejected, or contain no reading of the column.
func rejectsWrongTypes(t *testing.T, name string, e example) {
	for _, text := range []string{"", " ", "null", "true", "1", `"x"`, "[]", "{}", "[1]", "[[]]", `[{"n":1}]`,
		`{"Messages":1}`,
		`{"Messages":[1]}`, `{"Payload":1}`, `[{"n":"a","v":"b"}]`, `[{"bn":1}]`, `[{"bt":"x"}]`, `[{"n":"a","vs":{}}]`,
		"\xf6", "\x80", "\xa0", "\xf9\x7c\x00", "\x08\x01", "\x0a\x01x", "\x10\x01", "\x12\x01\x08", "a b c", "a b=",
		"a,b c=1",
		"sensors", `{"sensors":{"a":{"id":{}}}}`, `{"sensors":[[],1,null,{"id":["a"]}]}`} {
		c, err := decode(t, name, e.topic, []byte(text))
		if err != nil || name == FormatPlain {
			continue
		}
		if got := selected(t, name, e.column, &c); got != "" && got != "=null" {
			t.Errorf("%q is decoded as %q", text, got)
		}
	}
}

// TestFormatErrors checks that errors describe the fault and how to correct it.
func TestFormatErrors(t *testing.T) {
	for _, tt := range []struct{ format, topic, payload, want string }{
		{FormatJSON, "a", "cpu,host=a v=1", "set format: influx for its topic in data.topics"},
		{FormatJSON, "a", examples[FormatSparkplug].payload, "set format: sparkplug for its topic in data.topics"},
		{FormatJSON, "a", `{"a":`, "the JSON value is incomplete"},
		{FormatJSON, "a", " \x00", "the payload is empty"},
		{FormatJSON, "a", "\xa1\x61", "the CBOR payload of 2 bytes is invalid: unexpected EOF"},
		{FormatCBOR, "a", "", "the payload is empty"},
		{FormatCBOR, "a", "\x01\x02", "unexpected bytes after the CBOR value: it has 1 bytes, the payload has 2"},
		{FormatCBOR, "a", "\xa2\x61a\x01\x61a\x02", "duplicate map key"},
		{FormatSenML, "a", `{"v":1}`, "not a list of SenML records: remove format: senml from data.topics"},
		{FormatSenML, "a", `[{"n":"a","v":1},7]`, "SenML record 1 is not an object"},
		{FormatSenML, "a", `[{"n":"a","v":"1"}]`, `SenML record 0: v is "1"; want a number`},
		{FormatSenML, "a", `[{"bver":11,"n":"a","v":1}]`, "the SenML version is 11, but only versions up to 10"},
		{FormatSenML, "a", `[{"n":"a","v":1,"x_":1}]`, `the SenML extension "x_" must be understood, but is unknown`},
		{FormatSenML, "a", `[{"n":"a","v":1,"t":1e18}]`, "is later than the year 2262"},
		{FormatSenML, "a", `[{"bn":"` + strings.Repeat("b", 1024) + `","n":"a","v":1}]`,
			"the name has 1025 bytes; want at most"},
		{FormatInflux, "a", "a b=1\nc d=\n", "line 2 of line protocol: "},
		{FormatInflux, "a", "\n", "the payload is empty"},
		{FormatOPCUA, "a", "[1]", "OPC UA message 0 is \"1\"; want a JSON object: remove format: opcua"},
		{FormatOPCUA, "a", `{"Messages":[1]}`,
			"OPC UA message 0: the list Messages contains a value that is not an object"},
		{FormatSparkplug, "spBv1.0/a/NDATA", "\x08\x01", `topic "spBv1.0/a/NDATA" is not a Sparkplug topic`},
		{FormatSparkplug, "spBv1.0/a/XDATA/b", "\x08\x01", `unknown Sparkplug message type "XDATA"`},
		{FormatSparkplug, "spBv1.0/a/NDATA/b/c", "\x08\x01", `type "NDATA" has the wrong number of levels`},
		{FormatSparkplug, "spBv1.0/a/NDATA/b", "{}", "the payload is JSON, but Sparkplug B is encoded with Protobuf"},
		{FormatSparkplug, "spBv1.0/a/NDATA/b", "\x12\x03\x08\x01", "is invalid: field 2 at byte 0: "},
		{FormatSparkplug, "spBv1.0/a/NDATA/b", "\x0a\x01x", "field 1 at byte 0: a field has an unexpected type"},
	} {
		if _, err := decode(t, tt.format, tt.topic, []byte(tt.payload)); err == nil || !strings.Contains(err.Error(),
			tt.want) {
			t.Errorf("%s %q: %v, want %s", tt.format, tt.payload, err, tt.want)
		}
	}
}

// TestReadings checks details of the formats.
func TestReadings(t *testing.T) {
	metric := func(dataType, number uint64, slot protowire.Number) string {
		return string(encodeSparkplug(0, 0, sparkplug.Metric{Name: "m", DataType: dataType, ValueField: slot,
			Bits: number}))
	}
	const node = "spBv1.0/g/NDATA/n"
	for _, tt := range []struct{ format, topic, payload, column, want string }{
		{FormatPlain, "a", `"NNE"`, "", "=NNE"},
		{FormatPlain, "a", "\x00", "", "="},
		// a CBOR payload under the format JSON
		{FormatJSON, "a", "\xa1\x61v\xfb\x40\x35\x80\x00\x00\x00\x00\x00", "v", "=21.5"},
		{FormatJSON, "a", `{"time":"","v":1}`, "v", "=1"},
		{FormatJSON, "a", `[{"v":1},{"v":2},{"w":3}]`, "*.v", "=1 =2"},
		{FormatCBOR, "a", "\x18\x2a", "", "=42"},
		{FormatCBOR, "a", "\xf9\x7e\x00", "", "=null"}, // the number NaN in CBOR
		{FormatCBOR, "a", "\xf9\xfc\x00", "", "=-Inf"}, // the number −Infinity in CBOR
		{FormatCBOR, "a", "\xa1\x05\x20", "5", "=-1"},  // a map whose key is an integer
		// a self-described payload with a big number
		{FormatCBOR, "a", "\xd9\xd9\xf7\xa1\x61v\xc2\x42\x01\x00", "v", "=256"},
		{FormatCBOR, "a", "\xa1\x61v\x41\x00", "v", `={"type":"[]uint8"}`},
		{FormatCBOR, "a", "\xc1\x1a\x69\xa4\x2a\x40", "", "=2026-03-01T12:00:00Z"},
		// RFC 8428, section 6: the same pack as in section 5.1.2 in CBOR
		{FormatSenML, "a", fromHex("82a3216975726e3a6465763a61006174" + "02f94d60a200617502182a"), "urn:dev:at",
			"urn:dev:at=21.5"},
		{FormatSenML, "a", `[{"n":"a","t":-60,"v":1}]`, "a", "a=1"},
		{FormatSenML, "a", `[{"bn":"a","bv":20,"v":1.5},{"n":"b"},{"vd":"AA"},{"s":4}]`, "[unit=]", "a=21.5 ab=20"},
		{FormatSenML, "a", `[{"n":"a","v":null}]`, "a", "a=null"},
		{FormatInflux, "a", "m v=1i\nm v=2u\nm v=t\nm v=\"x\"", "v", "v=1 v=2 v=true v=x"},
		{FormatInflux, "a", "m,a=b\\ c v=1 \nm,a=d v=2", "v[a=b c][measurement=m]", "v=1"},
		{FormatOPCUA, "a", `[{"DataSetWriterName":"w","Payload":{"T":{"Type":11,"Body":1.5}}}]`, "T[writer=w]",
			"T=1.5"},
		{FormatOPCUA, "a", `{"T":{"Value":{"Value":1,"Status":2147483648}}}`, "T", "T=null"},
		{FormatOPCUA, "a", `{"T":{"Value":2,"StatusCode":{"Symbol":"BadNotConnected"}}}`, "T", "T=null"},
		{FormatOPCUA, "a", `{"T":{"Value":3,"Status":1073741824}}`, "T", "T=3"},
		{FormatOPCUA, "a", `{"MessageType":"ua-metadata","MetaData":{"T":1}}`, "T", ""},
		{FormatOPCUA, "a", `{"MessageType":"ua-keepalive","DataSetWriterId":1}`, "T", ""},
		{FormatSparkplug, node, metric(1, 0xffffffff, sparkplug.FieldInt), "m", "m=-1"},
		{FormatSparkplug, node, metric(2, 0xfffffffe, sparkplug.FieldInt), "m", "m=-2"},
		{FormatSparkplug, node, metric(3, 0xfffffffd, sparkplug.FieldInt), "m", "m=-3"},
		{FormatSparkplug, node, metric(4, math.MaxUint64, sparkplug.FieldLong), "m", "m=-1"},
		{FormatSparkplug, node, metric(7, 0xffffffff, sparkplug.FieldLong), "m", "m=4294967295"},
		{FormatSparkplug, node, metric(8, math.MaxUint64, sparkplug.FieldLong), "m", "m=18446744073709551615"},
		{FormatSparkplug, node, metric(10, math.Float64bits(0.1), sparkplug.FieldDouble), "m", "m=0.1"},
		{FormatSparkplug, node, metric(9, uint64(math.Float32bits(float32(math.NaN()))), sparkplug.FieldFloat), "m",
			"m=null"},
		{FormatSparkplug, node, metric(9, uint64(math.Float32bits(0.1)), sparkplug.FieldFloat), "m", "m=0.1"},
		{FormatSparkplug, node, metric(17, 0, sparkplug.FieldBytes), "m", `m={"type":"Sparkplug data type 17"}`},
		{FormatSparkplug, node, string(encodeSparkplug(0, 0, sparkplug.Metric{Name: "m", IsNull: true,
			ValueField: sparkplug.FieldInt})),
			"m", "m=null"},
		{FormatSparkplug, "spBv1.0/g/NCMD/n", metric(1, 1, sparkplug.FieldInt), "m", ""},
		{FormatSparkplug, "spBv1.0/STATE/host", `{"online":true}`, "m", ""},
	} {
		c, err := decode(t, tt.format, tt.topic, []byte(tt.payload))
		if err != nil {
			t.Errorf("%s %q: %v", tt.format, tt.payload, err)
			continue
		}
		if got := selected(t, tt.format, tt.column, &c); got != tt.want {
			t.Errorf("%s %q: %q, want %q", tt.format, tt.payload, got, tt.want)
		}
	}
	c, _ := decode(t, FormatSenML, "a", []byte(`[{"n":"a","t":-60,"v":1}]`))
	if r := c.readings[0]; r.Age != time.Minute || r.HasTime {
		t.Errorf("a relative time: %+v", r)
	}
}

// TestTimesOfTrees checks the times of values in a tree: one for all values, or one for each.
func TestTimesOfTrees(t *testing.T) {
	tree,
		err := ParseJSON([]byte(`{"a":{"v":1,"t":10},"b":{"v":2},"l":[{"v":3,"t":30},{"v":4,"t":40}],"t":5,"n":null}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		clock, column string
		isOptional    bool
		want          string
	}{
		{"t", "a.v", false, "=1@5"}, {"*.t", "a.v", false, "=1@10"}, {"l.*.t", "l[t=40].v", false, "=4@40"},
		{"l.*.t", "l.*.v", false, "=3@30 =4@40"}, {"*.t", "b.v", true, "=2"},
		{"*.t", "b.v", false, `=2 no time found at the JSON path "b.t"`}, {"x", "a.v", false,
			`no time found at the JSON path "x"`},
		{"x", "a.v", true, "=1"}, {"n", "a.v", true, "=1"}, {"n", "a.v", false, "not a time: null"},
		{"a", "a.v", true, `not a time: {"t":10,"v":1}`},
	} {
		clock := TimeField{IsOptional: tt.isOptional, Parse: func(text string) (int64, error) {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				err = errors.New("not a time: " + text)
			}
			return n, err
		}}
		if clock.Path, err = ParsePath(tt.clock); err != nil {
			t.Fatal(err)
		}
		var got []string
		c, err := TreeContent(tree, clock)
		if err != nil {
			got = append(got, err.Error())
			if wrong := (*TimeError)(nil); !errors.As(err, &wrong) {
				t.Errorf("error %T", err)
			}
		}
		column, err := ParseColumn(FormatJSON, tt.column)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range c.Select(&column) {
			text := "=" + ValueText(r.Value)
			if r.HasTime {
				text += fmt.Sprintf("@%d", r.Time)
			}
			if r.TimeErr != nil {
				text += " " + r.TimeErr.Error()
			}
			got = append(got, text)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("time %s of %s: %q, want %q", tt.clock, tt.column, got, tt.want)
		}
	}
}

// TestAvailability checks which messages mean that a device is offline.
func TestAvailability(t *testing.T) {
	for text, want := range map[string]Availability{"offline": Offline, "Offline\n": Offline, "online": Online,
		"false": Offline, "true": Online, `{"state":"offline"}`: Offline, `{"state":"online"}`: Online,
		`{"status":"down","pid":1}`: Offline, "": Online, "{": Online, "[1]": Online, `"offline"`: Offline} {
		c, err := NewAvailabilityDecoder().Decode(Message{Payload: []byte(text)})
		if err != nil || len(c.readings) != 1 || c.readings[0].Availability != want {
			t.Errorf("%q: %+v, %v; want %s", text, c, err, want)
		}
	}
}

// TestFilters checks the topic filters that a source subscribes to for the configured columns.
func TestFilters(t *testing.T) {
	for filter, want := range map[string]string{"spBv1.0/g/DDATA/n/d": "spBv1.0/g/+/n/#",
		"spBv1.0/g/+/n":   "spBv1.0/g/+/n/#",
		"spBv1.0/+/+/+/+": "spBv1.0/+/+/+/#", "spBv1.0/#": "spBv1.0/#", "spBv1.0/g/+/n/#": "spBv1.0/g/+/n/#",
		"spBv1.0/g": "", "spBv1.0/g/+/n/d/x": "", "a/b/c/d": ""} {
		got, err := SubscriptionFilter(FormatSparkplug, filter)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v; want %q", filter, got, err, want)
		}
	}
	if got, err := SubscriptionFilter(FormatJSON, "a/+"); got != "a/+" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	for filter, want := range map[string]string{"spBv1.0/g/DDATA/n/d": "spBv1.0/g/DATA/n/d", "spBv1.0/#": "spBv1.0/#",
		"spBv1.0/g/#": "spBv1.0/g/#"} {
		if got := DeviceFilter(FormatSparkplug, filter); got != want {
			t.Errorf("%s: %s, want %s", filter, got, want)
		}
	}
}

// fuzzFormat checks that a decoder of a format returns valid content or an error for any payloads, in any order.
func fuzzFormat(f *testing.F, name string) {
	e := examples[name]
	f.Add([]byte(e.payload), []byte(e.payload), e.column)
	for _, other := range Formats() {
		f.Add([]byte(examples[other].payload), []byte{}, "*[a=b].c")
	}
	f.Fuzz(func(t *testing.T, first, second []byte, column string) {
		d := NewDecoder(name, testOptions)
		for i, text := range [][]byte{first, second, first} {
			c, err := d.Decode(Message{Topic: e.topic, Payload: bytes.Clone(text),
				ReceivedAt: arrivalTime.Add(time.Duration(i) * time.Second)})
			checkContent(t, name, &c, err)
			if of, err := ParseColumn(name, column); err == nil {
				c.Select(&of)
			}
			if names := c.FirstNames(10); len(names) != len(slices.Compact(slices.Sorted(slices.Values(names)))) {
				t.Fatalf("names %q", names)
			}
		}
	})
}

func FuzzPlain(f *testing.F)     { fuzzFormat(f, FormatPlain) }
func FuzzJSON(f *testing.F)      { fuzzFormat(f, FormatJSON) }
func FuzzCBOR(f *testing.F)      { fuzzFormat(f, FormatCBOR) }
func FuzzSenML(f *testing.F)     { fuzzFormat(f, FormatSenML) }
func FuzzInflux(f *testing.F)    { fuzzFormat(f, FormatInflux) }
func FuzzOPCUA(f *testing.F)     { fuzzFormat(f, FormatOPCUA) }
func FuzzSparkplug(f *testing.F) { fuzzFormat(f, FormatSparkplug) }

// BenchmarkFormats decodes the example of each format and selects one column.
func BenchmarkFormats(b *testing.B) {
	for _, name := range Formats() {
		e := examples[name]
		column, err := ParseColumn(name, e.column)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			d := NewDecoder(name, testOptions)
			m := Message{Topic: e.topic, Payload: []byte(e.payload), ReceivedAt: arrivalTime}
			for b.Loop() {
				c, err := d.Decode(m)
				if err != nil || len(c.Select(&column)) == 0 {
					b.Fatal(err)
				}
			}
		})
	}
}
