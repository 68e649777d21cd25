// Package doctor examines the environment of a daemon: its state folder, the clock, and above all the broker. Each
// finding describes a problem and its remedy.
package doctor

import (
	"encoding/json"
	"fmt"
	"io"
)

// FindingStatus is the result of a check.
type FindingStatus string

// The results of a check.
const (
	Good    FindingStatus = "good"
	Warn    FindingStatus = "warn" // working, but with limitations
	Bad     FindingStatus = "bad"
	Skipped FindingStatus = "skipped" // not checked; the finding contains the reason
)

// Finding is the outcome of one check.
type Finding struct {
	Subject     string        `json:"about"`
	State       FindingStatus `json:"state"`
	Observation string        `json:"found"`
	Remedy      string        `json:"mend,omitempty"` // change to make; empty if none is needed
	// Federation is the name of the federation that the finding belongs to. It is empty if the device has only one
	// federation.
	Federation string `json:"federation,omitempty"`
}

// findingReporter shows findings and counts the findings with the status Bad.
type findingReporter struct {
	showFinding       func(Finding)
	observationPrefix string // text before the observation of each finding
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

// newTextFindingPrinter returns a function that writes findings as text.
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

// newJSONFindingPrinter returns a function that writes findings as JSON, one per line.
func newJSONFindingPrinter(w io.Writer) func(Finding) {
	e := json.NewEncoder(w)
	return func(f Finding) { _ = e.Encode(f) } // ignore the error: the output can no longer be written
}
