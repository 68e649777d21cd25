package datacheck

import (
	"fmt"
	"slices"

	"github.com/fedmesh/fedmesh/data/survey"
	"github.com/fedmesh/fedmesh/internal/doctor"
)

// DoctorFindings returns one finding per class of faults, followed by a finding on whether the agent would participate.
func (r *Result) DoctorFindings() []doctor.Finding {
	const about, all = "data", "run `agentd data check` to see all problems in the data"
	var found []doctor.Finding
	add := func(state doctor.FindingStatus, mend, format string, args ...any) {
		found = append(found, doctor.Finding{Subject: about, State: state, Observation: fmt.Sprintf(format, args...),
			Remedy: mend})
	}
	for _, c := range r.SourceSurvey.ConfigChanges {
		mend := "correct the file"
		if c.Key != "" {
			mend = fmt.Sprintf("set data.%s: %q", c.Key, c.Value)
		}
		add(doctor.Bad, mend, "%s: %s", r.SourceSurvey.SourcePath, c.Reason)
	}
	for _, f := range r.SourceSurvey.Faults {
		if f.Reason == survey.ReasonNothingRecorded {
			continue // the last finding reports this fault
		}
		text := fmt.Sprintf("%d %s", f.Count, f.Reason)
		if f.Column != "" {
			text = fmt.Sprintf("column %q: %s", truncateText(f.Column), text)
		}
		mend := f.Remedy
		if mend == "" && f.Count > 1 {
			mend = all
		}
		add(doctor.Warn, mend, "%s, first: %s", text, formatFault(r.SourceSurvey.SourcePath, f.FirstFaults[0]))
	}
	switch {
	case r.linesAreReadings && r.SourceSurvey.LineCount == 0 && !slices.ContainsFunc(r.SourceSurvey.Faults,
		hasUnreadReadings):
		add(doctor.Warn, "start the agent, or wait for readings", "the agent has not recorded any sensor readings yet")
	case r.DeclineReason != "":
		add(doctor.Bad, "correct the data or the configuration; run `agentd data check` for details",
			"this device would decline the task: %s", r.DeclineReason)
	case r.Task == nil:
		add(doctor.Good, "", "%s; the data was not checked against a task: %s", r.Summary(), r.NoTaskReason)
	default:
		add(doctor.Good, "", "%s", r.Summary())
	}
	return found
}

// hasUnreadReadings reports whether the fault group f means that some readings could not be read.
func hasUnreadReadings(f *survey.DataFaultGroup) bool {
	return f.Reason == survey.ReasonUnreadable || f.Reason == survey.ReasonDamaged
}
