package datacheck

import (
	"fmt"
	"slices"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/internal/doctor"
)

// Findings are the result for the doctor: a finding for each class of faults, then whether the agent would take part.
func (r *Result) Findings() []doctor.Finding {
	const about, all = "data", "`agentd data check` shows all of them"
	var found []doctor.Finding
	add := func(state doctor.State, mend, format string, args ...any) {
		found = append(found, doctor.Finding{About: about, State: state, Found: fmt.Sprintf(format, args...),
			Mend: mend})
	}
	for _, c := range r.Data.Changes {
		mend := "change the file"
		if c.Key != "" {
			mend = fmt.Sprintf("set data.%s: %q", c.Key, c.Value)
		}
		add(doctor.Bad, mend, "%s: %s", r.Data.Source, c.Why)
	}
	for _, f := range r.Data.Faults {
		if f.Reason == data.Unrecorded {
			continue // the last finding says it
		}
		text := fmt.Sprintf("%d %s", f.Count, f.Reason)
		if f.Column != "" {
			text = fmt.Sprintf("column %q: %s", cut(f.Column), text)
		}
		mend := f.Mend
		if mend == "" && f.Count > 1 {
			mend = all
		}
		add(doctor.Warn, mend, "%s, the first: %s", text, line(r.Data.Source, f.First[0]))
	}
	switch {
	case r.recorded && r.Data.Lines == 0 && !slices.ContainsFunc(r.Data.Faults, lost):
		add(doctor.Warn, "start the agent, or wait for readings", "nothing was recorded yet")
	case r.Declines != "":
		add(doctor.Bad, "correct it, and see `agentd data check`", "this device would decline: %s", r.Declines)
	case r.Task == nil:
		add(doctor.Good, "", "%s; they are held against no task: %s", r.Summary(), r.NoTask)
	default:
		add(doctor.Good, "", "%s", r.Summary())
	}
	return found
}

// lost reports whether readings may be there that were not read.
func lost(f *data.Faults) bool { return f.Reason == data.Unreadable || f.Reason == data.Damaged }
