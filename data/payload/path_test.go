package payload

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// TestParsePath checks paths and their text.
func TestParsePath(t *testing.T) {
	cond := func(key, value string) []condition { return []condition{{MemberPath(key), value}} }
	for text, want := range map[string]Path{"": nil, "a": {{name: "a"}},
		"a.0.b c":           {{name: "a"}, {name: "0"}, {name: "b c"}},
		`a\.b\\.c`:          {{name: `a.b\`}, {name: "c"}},
		"PM2\\.5 [µg/m³]":   {{name: "PM2.5 [µg/m³]"}},
		"a[n=x].v":          {{name: "a"}, {conditions: cond("n", "x")}, {name: "v"}},
		"[n=a.b/c: d].v":    {{conditions: cond("n", "a.b/c: d")}, {name: "v"}},
		`[n=a\]b\\]`:        {{conditions: cond("n", `a]b\`)}},
		"[n=]":              {{conditions: cond("n", "")}},
		"[n=a=b]":           {{conditions: cond("n", "a=b")}},
		"[a=1].[b=2]":       {{conditions: cond("a", "1")}, {conditions: cond("b", "2")}},
		"[a=1][b=2]":        {{conditions: append(cond("a", "1"), cond("b", "2")...)}},
		"[a.b=1]":           {{conditions: []condition{{Path{{name: "a"}, {name: "b"}}, "1"}}}},
		`[a\.b=1]`:          {{conditions: cond("a.b", "1")}},
		"*.v":               {{name: "*", isWildcard: true}, {name: "v"}},
		`\*.v`:              {{name: "*"}, {name: "v"}},
		"x[a=b]c":           {{name: "x[a=b]c"}},
		"x[]":               {{name: "x[]"}},
		"x[=1]":             {{name: "x[=1]"}},
		`x\[a\=b\]`:         {{name: "x[a=b]"}},
		"switch:0.apower":   {{name: "switch:0"}, {name: "apower"}},
		"DS18B20-1.ärger[x": {{name: "DS18B20-1"}, {name: "ärger[x"}},
	} {
		p, err := ParsePath(text)
		if err != nil || !reflect.DeepEqual(p, want) {
			t.Errorf("%q: %+v, %v; want %+v", text, p, err, want)
		}
		if again, err := ParsePath(p.String()); err != nil || !reflect.DeepEqual(again, p) {
			t.Errorf("%q is written %q: %+v, %v", text, p, again, err)
		}
	}
	for text, want := range map[string]string{"a..b": "contains an empty name", ".": "empty name", "a.": "empty name",
		`a\`: "must not end with a backslash", `a\b`: `before one of the characters . \ [ ] = *`,
		".[a=1]": "empty name"} {
		if p, err := ParsePath(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q, %v; want %s", text, p, err, want)
		}
	}
}

// TestPathSelection checks the values that paths select, and their places.
func TestPathSelection(t *testing.T) {
	tree, err := ParseJSON([]byte(`{"m":[{"n":"a","v":1},{"n":"b","v":2},{"n":"a","v":3,"t":{"h":"x"}},5,null],
		"d":{"p1":{"id":"A","v":7},"p2":{"id":"B","v":8}},"k":{"*":{"v":9}},"x":true,"num":[{"id":4,"v":1}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"m.1.v": "2@m/1/v", "m[n=a].v": "1@m/0/v 3@m/2/v", "m.*.v": "1@m/0/v 2@m/1/v 3@m/2/v", "m[n=c].v": "",
		"m[n=a][v=3].v": "3@m/2/v", "m[t.h=x].n": "a@m/2/n", "d[id=B].v": "8@d/p2/v", "d.*.v": "7@d/p1/v 8@d/p2/v",
		"k.*.v": "9@k/*/v", `k.\*.v`: "9@k/*/v", "x": "true@x", "x.y": "", "m.9": "", "m.-1": "", "m.x": "",
		"num[id=4].v": "1@num/0/v", "*[id=A].v": "7@d/p1/v",
	} {
		p, err := ParsePath(text)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		p.selectIn(tree, nil, func(v any, place []string) bool {
			got = append(got, fmt.Sprintf("%s@%s", ValueText(v), strings.Join(place, "/")))
			return true
		})
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
		first, found := p.first(tree)
		if found != (want != "") || found && !strings.HasPrefix(want, ValueText(first)+"@") {
			t.Errorf("%s: the first value is %v, %v; want %s", text, first, found, want)
		}
	}
}

// TestColumnsOfLists checks how the text of a column of a list is parsed.
func TestColumnsOfLists(t *testing.T) {
	for text, want := range map[string]string{"Supply Voltage": "Supply Voltage []", "Inputs/A.b": "Inputs/A.b []",
		"Motor[1]": "Motor[1] []", "t[host=a b]": "t [host=a b]", "[unit=lon]": " [unit=lon]",
		"Motor[1][x=1][y=2]": "Motor[1] [x=1 y=2]", "a[x=1]b": "a[x=1]b []"} {
		c, err := ParseColumn(FormatInflux, text)
		var conditions []string
		for _, of := range c.conditions {
			conditions = append(conditions, of.key.String()+"="+of.value)
		}
		if got := fmt.Sprint(c.name, " ", conditions); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
	if _, err := ParseColumn(FormatPlain, "a"); err == nil || !strings.Contains(err.Error(), "has no paths") {
		t.Errorf("%v", err)
	}
}

// FuzzPath checks that a path written for any names selects the same value again, and that parsing and writing a path
// does not change it.
func FuzzPath(f *testing.F) {
	for _, text := range []string{"fields.temperature", "sensors.0.value", `PM2\.5 (µg/m³)`, `a\\.b`, "a..b", `a\`,
		".", "",
		"\x00.\xff", "01.-1.1e1", "m[n=a].v", "[a=b][c=d].[e=f]", "*.x", `\*`, "[a.[b=c]=d]", `[\[=\]]`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if p, err := ParsePath(text); err == nil {
			if again, err := ParsePath(p.String()); err != nil || !reflect.DeepEqual(again, p) {
				t.Fatalf("%q is %+v, written %q: %+v, %v", text, p, p, again, err)
			}
			p.first(map[string]any{"a": []any{map[string]any{"b": json.Number("1")}}})
		}
		if text == "" {
			return
		}
		written := Path{{name: text}, {conditions: []condition{{MemberPath(text), text}}}, {name: text}}
		p, err := ParsePath(written.String())
		if err != nil || !reflect.DeepEqual(p, written) {
			t.Fatalf("%+v is written %q: %+v, %v", written, written, p, err)
		}
		tree := map[string]any{text: []any{map[string]any{text: text}, nil}}
		if v, found := p.first(tree); !found || v != text {
			t.Fatalf("%q leads to %v", p, v)
		}
	})
}
