package datacheck

import (
	"fmt"
	"slices"

	"github.com/fedmesh/fedmesh/data/survey"
	"github.com/fedmesh/fedmesh/internal/doctor"
)

// Findings are the result for the doctor: a finding for each class of faults, then whether the agent would take part.
func (r *Result) Findings() []doctor.Finding {
	const about, all = "data", "`agentd data check` shows all of them"
	var found []doctor.Finding
	add := func(state doctor.FindingStatus, mend, format string, args ...any) {
		found = append(found, doctor.Finding{About: about, State: state, Observation: fmt.Sprintf(format, args...),
			Remedy: mend})
	}
	for _, c := range r.SourceSurvey.Changes {
		mend := "change the file"
		if c.Key != "" {
			mend = fmt.Sprintf("set data.%s: %q", c.Key, c.Value)
		}
		add(doctor.Bad, mend, "%s: %s", r.SourceSurvey.Source, c.Why)
	}
	for _, f := range r.SourceSurvey.Faults {
		if f.Reason == survey.ReasonNothingRecorded {
			continue // the last finding says it
		}
		text := fmt.Sprintf("%d %s", f.Count, f.Reason)
		if f.Column != "" {
			text = fmt.Sprintf("column %q: %s", truncateText(f.Column), text)
		}
		mend := f.Remedy
		if mend == "" && f.Count > 1 {
			mend = all
		}
		add(doctor.Warn, mend, "%s, the first: %s", text, formatFault(r.SourceSurvey.Source, f.FirstFaults[0]))
	}
	switch {
	case r.linesAreReadings && r.SourceSurvey.Lines == 0 && !slices.ContainsFunc(r.SourceSurvey.Faults,
		hasUnreadReadings):
		add(doctor.Warn, "start the agent, or wait for readings", "nothing was recorded yet")
	case r.DeclineReason != "":
		add(doctor.Bad, "correct it, and see `agentd data check`", "this device would decline: %s", r.DeclineReason)
	case r.Task == nil:
		add(doctor.Good, "", "%s; they are held against no task: %s", r.Summary(), r.NoTaskReason)
	default:
		add(doctor.Good, "", "%s", r.Summary())
	}
	return found
}

// hasUnreadReadings reports whether readings may be there that were not read.
func hasUnreadReadings(f *survey.FaultGroup) bool {
	return f.Reason == survey.ReasonUnreadable || f.Reason == survey.ReasonDamaged
}
