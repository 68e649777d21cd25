// Package doctor examines what a daemon depends on: its state folder, the clock, and above all the broker. Each
// finding says what is wrong and what to change.
package doctor

import (
	"encoding/json"
	"fmt"
	"io"
)

// FindingStatus is how an examination ended.
type FindingStatus string

// The states.
const (
	Good    FindingStatus = "good"
	Warn    FindingStatus = "warn" // it works, but not well
	Bad     FindingStatus = "bad"
	Skipped FindingStatus = "skipped" // could not be examined; the finding says why
)

// Finding is what one examination found.
type Finding struct {
	Subject     string        `json:"about"`
	State       FindingStatus `json:"state"`
	Observation string        `json:"found"`
	Remedy      string        `json:"mend,omitempty"` // what to change; empty if nothing
	// Federation is which one of a device's it is about; empty if there is one.
	Federation string `json:"federation,omitempty"`
}

// findingReporter shows findings, and counts the bad ones.
type findingReporter struct {
	showFinding       func(Finding)
	observationPrefix string // prefix of each finding
	badFindingCount   int

	federation string
}

func (r *findingReporter) addFinding(about string, s FindingStatus, mend, format string, args ...any) {
	if s == Bad {
		r.badFindingCount++
	}
	r.showFinding(Finding{about, s, r.observationPrefix + fmt.Sprintf(format, args...), mend, r.federation})
}

func (r *findingReporter) addGoodFinding(about, format string, args ...any) {
	r.addFinding(about, Good, "", format, args...)
}

var markByStatus = map[FindingStatus]string{Good: "ok  ", Warn: "warn", Bad: "BAD ", Skipped: "skip"}

// newTextFindingPrinter writes findings for a person.
func newTextFindingPrinter(w io.Writer) func(Finding) {
	about := ""
	return func(f Finding) {
		if f.Federation != about {
			about = f.Federation
			fmt.Fprintf(w, "federation %s:\n", about)
		}
		fmt.Fprintf(w, "%s  %-14s %s\n", markByStatus[f.State], f.Subject, f.Observation)
		if f.Remedy != "" {
			fmt.Fprintf(w, "      %-14s → %s\n", "", f.Remedy)
		}
	}
}

// newJSONFindingPrinter writes findings as JSON, one per line.
func newJSONFindingPrinter(w io.Writer) func(Finding) {
	e := json.NewEncoder(w)
	return func(f Finding) { _ = e.Encode(f) } // a reader that has gone needs no error
}
