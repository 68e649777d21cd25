package conformance

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

var update = flag.Bool("update", false, "keep what is seen of brokers in seen.json, and write docs/BROKERS.md")

// fact is a column of docs/BROKERS.md: a property in which brokers differ and which the suite observes.
type fact string

// The facts, in the order of the table columns. The value of each fact for each broker was observed by a test.
const (
	survives  fact = "retained messages survive `kill -9`"
	wildcards fact = "retained messages by wildcard"
	bounded   fact = "memory bounded with stalled clients"
	hangsUp   fact = "closes connections with invalid data"
	refuses   fact = "closes connections that send 256 KiB"
)

var facts = []fact{survives, wildcards, bounded, hangsUp, refuses}

const yes, no = "yes", "no"

// yesIf returns the table entry for a boolean fact.
func yesIf(x bool) string {
	if x {
		return yes
	}
	return no
}

// entry is a row of the table: the observed facts of one broker.
type entry struct {
	Name string
	Runs string // frequency of the tests: "each commit" or "nightly"
	Seen map[fact]string
}

// record is the content of seen.json: the facts that earlier runs have observed. A test run fails if it observes a
// different value.
type record struct {
	mu      sync.Mutex
	entries []*entry
	now     map[string]map[fact]bool // facts that this run has observed, by broker
}

const recordFile = "seen.json"

var kept = loadRecord()

func loadRecord() *record {
	r := &record{now: map[string]map[fact]bool{}}
	text, err := os.ReadFile(recordFile)
	if err == nil {
		err = json.Unmarshal(text, &r.entries)
	}
	if err != nil {
		panic(err)
	}
	return r
}

// of returns the entry of a broker. A new broker has an entry without facts.
func (r *record) of(s subject) *entry {
	i := slices.IndexFunc(r.entries, func(e *entry) bool { return e.Name == s.name })
	if i < 0 {
		r.entries = append(r.entries, &entry{Name: s.name, Seen: map[fact]string{}})
		i = len(r.entries) - 1
	}
	e := r.entries[i]
	e.Runs = "nightly"
	if e.place() < len(subjects) {
		e.Runs = "each commit"
	}
	return e
}

// place returns the position of the broker's row in the table. Brokers that are tested nightly follow the other
// brokers.
func (e *entry) place() int {
	if i := slices.IndexFunc(subjects, func(s subject) bool { return s.name == e.Name }); i >= 0 {
		return i
	}
	return len(subjects)
}

// saw compares an observed fact with the recorded value and fails the test if they differ. With the test flag -update,
// it records the observed value instead.
func (s subject) saw(t *testing.T, f fact, got string) {
	t.Helper()
	if s.name == "" { // The in-memory broker is not in the table.
		return
	}
	kept.mu.Lock()
	defer kept.mu.Unlock()
	if kept.now[s.name] == nil {
		kept.now[s.name] = map[fact]bool{}
	}
	kept.now[s.name][f] = true
	e := kept.of(s)
	want := e.Seen[f]
	switch {
	case got == want:
	case !*update:
		t.Errorf("%s: %q, but %s has %q. If the broker is another one now, keep it: go test ./internal/conformance "+
			"-run 'TestConformance/%s$' -update (others: -tags nightly), and then -run TestPage -update", f, got,
			recordFile, want, strings.ReplaceAll(s.name, " ", "_"))
	default:
		e.Seen[f] = got
		slices.SortFunc(kept.entries, func(a, b *entry) int {
			return cmp.Or(a.place()-b.place(), cmp.Compare(a.Name, b.Name))
		})
		text, err := json.MarshalIndent(kept.entries, "", "\t")
		if err == nil {
			err = os.WriteFile(recordFile, append(text, '\n'), 0o644)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// known returns the recorded value of a fact, for tests that depend on this property of the broker.
func (s subject) known(f fact) string {
	kept.mu.Lock()
	defer kept.mu.Unlock()
	if s.name == "" {
		return yes
	}
	return kept.of(s).Seen[f]
}

// sawAll checks that a complete run has observed every fact of the broker. With the flag -short it does nothing,
// because no broker runs.
func (s subject) sawAll(t *testing.T) {
	if testing.Short() {
		return
	}
	kept.mu.Lock()
	defer kept.mu.Unlock()
	for _, f := range facts {
		if !kept.now[s.name][f] && (f != bounded || runtime.GOOS == "linux" && !racing) {
			t.Errorf("no test has looked at %q", f)
		}
	}
}

// table returns the table of docs/BROKERS.md in Markdown.
func (r *record) table() string {
	var out strings.Builder
	line := func(cells ...string) { fmt.Fprintf(&out, "| %s |\n", strings.Join(cells, " | ")) }
	head, rule := []string{"broker", "tested"}, []string{"---", "---"}
	for _, f := range facts {
		head, rule = append(head, string(f)), append(rule, "---")
	}
	line(head...)
	line(rule...)
	for _, e := range r.entries {
		cells := []string{e.Name, e.Runs}
		for _, f := range facts {
			cells = append(cells, e.Seen[f])
		}
		line(cells...)
	}
	return out.String()
}

// Lines that enclose the table in docs/BROKERS.md.
const (
	tableBegins = "<!-- written from internal/conformance/seen.json: go test ./internal/conformance -run TestPage " +
		"-update -->\n"
	tableEnds = "<!-- end -->\n"
)

// TestPage checks that the table in docs/BROKERS.md contains exactly the recorded facts.
func TestPage(t *testing.T) {
	for _, s := range append(subjects, others...) {
		for _, f := range facts {
			if s.known(f) == "" {
				t.Errorf("nothing is kept of %s: %s", s.name, f)
			}
		}
	}
	for _, e := range kept.entries {
		if len(e.Seen) != len(facts) {
			t.Errorf("of %s %d facts are kept, want %d", e.Name, len(e.Seen), len(facts))
		}
	}
	path := filepath.Join("..", "..", "docs", "BROKERS.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(text), tableBegins)
	_, after, ends := strings.Cut(rest, tableEnds)
	if !begins || !ends {
		t.Fatalf("docs/BROKERS.md has no place for the table: no line %q, or none %q after it", tableBegins, tableEnds)
	}
	page := before + tableBegins + kept.table() + tableEnds + after
	if *update {
		if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if page != string(text) {
		t.Errorf("the table of docs/BROKERS.md is not what %s makes: go test ./internal/conformance -run TestPage "+
			"-update", recordFile)
	}
}
