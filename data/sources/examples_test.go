package sources

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/data/payload"
	"github.com/fedmesh/fedmesh/data/rows"
	"github.com/fedmesh/fedmesh/store"
)

// TestExampleOfEachReason checks that the last rejected value of each reason is reported by the agent, by the agent's
// rows after a restart, and by `agentd data check`.
func TestExampleOfEachReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := everyMinute("")
		w.Recipe.Inputs[0].ValidRange = []float64{-50, 60}
		c := data.Config{TimeColumn: "ts", MaxUnusableShare: 0.9}
		l := newLiveHarness(t, c, w, map[string]string{"temp": "t", "hum": "h"})
		defer func() { l.end() }()
		for n, value := range []string{`null`, `1e999`, `[1]`, `61`, `{"v":"x"}`, `99`, `"warm"`, `-Infinity`, `1 2`} {
			pass(time.Minute)
			l.deliver([]string{"a", "b", "c", "d", "e", "f", "g", "h", "i"}[n],
				`{"ts":"`+rows.FormatTime(l.env.Now().UnixNano())+`","t":`+value+`,"h":1}`)
		}
		l.deliver("j", `{"ts":null,"t":1,"h":1}`)
		wanted := map[data.UnusedReason]string{
			grid.ReasonMissing:    "a: the value is absent, null or empty",
			grid.ReasonNotANumber: `at 2026-03-01T00:07:00Z: "warm" is not a number`,
			grid.ReasonNotFinite:  `h: "-Infinity" is not finite`,
			grid.ReasonMalformed:  `i: invalid character '2' after object key:value pair: …`,
			grid.ReasonOutOfRange: `at 2026-03-01T00:06:00Z: "99" is outside the range of the input`,
			grid.ReasonBadTime:    "j: null is not a time in the format 2026-03-01T12:00:00Z or in seconds since 1970",
		}
		_, report, _ := l.compareWithCheck()
		temp := report.EnsureColumn("temp")
		for why, want := range wanted {
			if got := temp.LastUnusedValue(why).String(); !strings.Contains(got, want) {
				t.Errorf("%s: %s, want %s", why, got, want)
			}
		}
		c.Source = data.SourceLines
		stored, err := OpenStoredSource(&c, store.LocalDisk, l.env.RingFolder)
		if err != nil {
			t.Fatal(err)
		}
		found := map[data.UnusedReason]string{}
		for _, f := range stored.Survey(&w).Faults {
			if f.Column == "temp" {
				for _, one := range f.FirstFaults {
					found[f.Reason] += one.Problem + "\n"
				}
			}
		}
		wanted[grid.ReasonNotANumber] = `e: "{\"v\":\"x\"}" is not a number`
		wanted[grid.ReasonOutOfRange] = `2026-03-01T00:06:00Z: "99" is outside the range of the input`
		for why, want := range wanted {
			if got := found[why]; !strings.Contains(got, want) {
				t.Errorf("check: %s: %s, want %s", why, got, want)
			}
		}
	})
}

// TestExampleOfEachReasonInAFile checks that the report for a file contains the last rejected value of each reason.
func TestExampleOfEachReasonInAFile(t *testing.T) {
	_, r := csvAt(t, "d.csv", "t,x,y\n5,1,1\n6,,1\n7,warm,2\n8,-Inf,2\n9,hot,2\n10,1,\n11,1,2\n",
		data.Config{TimeColumn: "t", MaxUnusableShare: 0.9})
	if _, err := r.Snapshot(); err != nil {
		t.Fatal(err)
	}
	report := textOf(r).QualityReport()
	for why, want := range map[data.UnusedReason]string{
		grid.ReasonMissing:    "d.csv: line 3: the value is empty, but a number is required",
		grid.ReasonNotANumber: `d.csv: line 6: "hot" is not a number`,
		grid.ReasonNotFinite:  `d.csv: line 5: "-Inf" is not finite`,
	} {
		if got := report.EnsureColumn("x").LastUnusedValue(why).String(); !strings.HasSuffix(got, want) {
			t.Errorf("%s: %s, want %s", why, got, want)
		}
	}
	if got := report.EnsureColumn("x").LastUnusedValue(grid.ReasonLate); got != (data.UnusedValue{}) {
		t.Errorf("no value is late, but %s is", got)
	}
}

// TestLinesOfJSON checks that a byte order mark before a line and a control character in a string are ignored.
func TestLinesOfJSON(t *testing.T) {
	for _, line := range []string{"\ufeff{\"v\":1}",
		"{\"v\":1,\"note\":\"a\x01b\"}", "\x1e{\"v\":1}", `{"v":1,"w":-nan(ind)}`} {
		log := newSourceStats(time.Now, nil)
		var got []data.Reading
		l := &lineSource{payloadParser: payloadParser{columns: []payloadColumn{{input: "v",
			Column: payload.Column{Path: payload.MemberPath("v")}}}, stats: log,
			addReading: func(r data.Reading) { got = append(got, r) }}}
		l.parseLine([]byte(line), payloadMeta{place: "line 1", receivedAt: arrival})
		if len(got) != 1 || got[0].Value != 1 {
			t.Errorf("%q: %+v, %+v", line, got, log.columnReports())
		}
	}
}
