package payload

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestParseNearlyJSON checks that texts which are almost JSON are parsed. At most the value of one member may be lost.
func TestParseNearlyJSON(t *testing.T) {
	number := func(text string) any { return json.Number(text) }
	for text, want := range map[string]any{
		"-nan(ind)": nil, "nan(ind)": nil, "NaN": nil, "-NAN": nil, "nan(snan)": nil, "1.#QNAN": nil, "-1.#IND": nil,
		"-1.#IND00": nil, "1.#QNAN0": nil, "1.#J": nil, "None": nil, "nil": nil, "undefined": nil, "NULL": nil,
		"Infinity": "Infinity", "-Infinity": "-Infinity", "+inf": "Infinity", "1.#INF": "Infinity",
		"-1.#INF00": "-Infinity", "True": true, "FALSE": false,
		"0x1F": "0x1F", "+5": "+5", ".5": ".5", "01": "01", "20.5C": "20.5C", "N/A": "N/A", "-": "-", "off": "off",
		"1_000": "1_000", "ÿ<>&": "ÿ<>&", "'on'": "'on'", "1e5": number("1e5"), "-0.5E-3": number("-0.5E-3"),
		`"a` + "\x01\x1f\t\r" + `b"`: "a\x01\x1f\t\rb", `"C:\data\x1\"\n"`: "C:\\data\\x1\"\n", `"\u12"`: `\u12`,
		`"\u00fc"`: "ü", `"\\server"`: `\server`, `"NaN, [1.#INF]"`: "NaN, [1.#INF]",
	} {
		for _, layout := range []string{`{"v":%,"h":50.5}`, "{ \"h\" : 50.5,\x00\x02 \"v\" :\t% }", "[%,50.5]",
			"[50.5 , %]", "\ufeff\x00{\"h\":50.5,\"v\":%}\x00\r\n", "\x00\ufeff{\"a\":[{},%],\"v\":%,\"h\":50.5}",
			"\x1e{\"v\":%,\"h\":50.5}"} {
			whole := strings.ReplaceAll(layout, "%", text)
			got, err := ParseJSON([]byte(whole))
			if err != nil {
				t.Errorf("%q: %v", whole, err)
				continue
			}
			v, h := any(nil), any(nil)
			switch of := got.(type) {
			case map[string]any:
				v, h = of["v"], of["h"]
			case []any:
				if v, h = of[0], of[1]; of[0] == number("50.5") {
					v, h = h, v
				}
			}
			if !reflect.DeepEqual(v, want) || h != number("50.5") {
				t.Errorf("%q: %#v and %#v, want %#v", whole, v, h, want)
			}
		}
	}
}

// TestJSONErrors checks that an error shows the text around the first fault that cannot be repaired.
func TestJSONErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":     "no JSON value found: ``",
		"warm": "invalid character 'w' looking for beginning of value: `warm`",
		`{"time":"2026-03-01T21:00:00Z","temp":20,5,"hum":51.2,"wind":3}`: "invalid character '5' looking for " +
			"beginning of object key string: …`01T21:00:00Z\",\"temp\":20,5,\"hum\":51.2,\"wi`…",
		`{"a":NaN,"b":-nan(ind),"c":1 2}`: "invalid character '2' after object key:value pair: " +
			"…`NaN,\"b\":-nan(ind),\"c\":1 2}`",
		`{"time":"2026-03-01T20:00:00Z"`: "the JSON value is incomplete: …`\":\"2026-03-01T20:00:00Z\"`",
		`{"a":"torn`:                     "the JSON value is incomplete: `{\"a\":\"torn`",
		`{"a":NaN}{"a":1}`:               "unexpected text after the JSON value: `{\"a\":NaN}{\"a\":1}`",
		`{"a":NaN,b:1}`: "invalid character 'b' looking for beginning of object key " +
			"string: `{\"a\":NaN,b:1}`",
		"{\"a`\":1,}": "invalid character '}' looking for beginning of object key " +
			"string: \"{\\\"a`\\\":1,}\"",
		`{"` + strings.Repeat("ä", 50) + `":x":1}`: "…`" + strings.Repeat("ä", 21) + "\":x\":1}`",
		"{\"\u202e\":1,}": `"{\"\u202e\":1,}"`,
		"{\xff":           "`{ÿ`",
		"]":               "`]`",
	} {
		v, err := ParseJSON([]byte(text))
		if err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%q is %v, %v; want %s", text, v, err, want)
		}
	}
}

// FuzzParseJSON checks that valid JSON has the same value with and without repair, that repairing twice changes
// nothing, and that errors are valid UTF-8.
func FuzzParseJSON(f *testing.F) {
	for _, text := range []string{`{"a":-nan(ind),"b":[1,0x1F,"\q"]}`,
		"[\"\x01\\u12\",NaN", `{"a":1}}`, "\ufeff1", `"\`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ParseJSON([]byte(text))
		if err != nil && (!utf8.ValidString(err.Error()) || len(err.Error()) > 1000) {
			t.Errorf("%q: %q", text, err)
		}
		want, _, strict := parseStrictJSON(trimPayload([]byte(text)))
		if strict == nil && (err != nil || !reflect.DeepEqual(got, want)) {
			t.Errorf("%q is %v, %v; want %v", text, got, err, want)
		}
		once := repairJSON([]byte(text))
		if twice := repairJSON(once.text); string(twice.text) != string(once.text) {
			t.Errorf("%q becomes %q, and then %q", text, once.text, twice.text)
		}
		for i := range len(once.text) + 1 {
			if at := once.originalOffsetOf(i); at < 0 || at > len(text) || i > 0 && at < once.originalOffsetOf(i-1) {
				t.Errorf("%q: offset %d comes from %d", text, i, at)
			}
		}
	})
}
