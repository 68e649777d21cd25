package agentstatus

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/agent/announcement"
	"github.com/fedmesh/fedmesh/agent/identity"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/internal/status"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// Draw returns the status page as text, width columns wide.
func (a *agentStatus) Draw(width int) string {
	p := &status.Page{Width: width}
	p.AddHeadLines("agentd", fmt.Sprintf("%s, agent %s of federation %s", a.ProgramVersion, a.ID, a.Federation),
		a.GeneratedAt,
		a.Started, a.Conditions, a.Broker)
	switch a.TaskFitness {
	case "":
		p.AddLine("data", "%s", a.noTaskReason())
	case agentround.TaskFitnessOK:
		p.AddLine("data", "%d rows usable for the task", a.Rows)
	default:
		p.AddLine("data", "cannot train for the task: %s", a.TaskFitness)
	}
	a.drawInputsWithUnusedValues(p)
	if m := a.Model; m != nil {
		pinned := ""
		if m.IsPinned {
			pinned = ", selected by an operator (to return to the newest model: `agentd model use newest`)"
		}
		p.AddLine("predicts", "with model %d/%d, in use for %s%s", m.Run, m.Version,
			a.GeneratedAt.Sub(m.InUseSince).Round(time.Second), pinned)
	}
	if c := a.CertificateEndsAt; !c.IsZero() {
		p.AddLine("certificate", "expires %s UTC, in %s", c.UTC().Format(time.DateTime),
			identity.FormatDays(c.Sub(a.GeneratedAt)))
	}
	if b := a.Budget; b != nil {
		p.AddLine("budget", "%s %.1f of %.1f MB used in %s", status.ProgressBar(float64(b.UsedBytes),
			float64(b.LimitBytes)),
			float64(b.UsedBytes)/1e6,
			float64(b.LimitBytes)/1e6, b.Month)
	}
	if w := a.Work; w == nil && a.AnnouncedRound > 0 {
		p.AddLine(fmt.Sprintf("round %d", a.AnnouncedRound), "%s", a.idleReason())
	} else if w != nil {
		doing := "in progress"
		if w.HasFinishedLocalSteps {
			doing = "sending its update"
		}
		took, all := a.GeneratedAt.Sub(w.StartedAt), w.Deadline.Sub(w.StartedAt)
		p.AddLine(fmt.Sprintf("round %d", w.Round), "%s, %s", w.Kind, doing)
		p.AddLine("  time", "%s %s of at most %s", status.ProgressBar(took.Seconds(), all.Seconds()),
			status.FormatDuration(took),
			status.FormatDuration(all))
	}
	if w := a.TrainingWait; w != nil {
		p.AddLine("  waits", "for %s, while this device trains for federation %s",
			status.FormatDuration(a.GeneratedAt.Sub(w.WaitingSince)), w.BusyFederation)
	}
	if t := a.LastTraining; t != nil {
		waited := ""
		if t.LockWaitSeconds > 0 {
			waited = fmt.Sprintf(", after waiting %s for the training of other federations",
				status.FormatSeconds(t.LockWaitSeconds))
		}
		p.AddLine("last trained", "round %d: E=%d steps (by %s) in %s, %s each%s", t.Round, t.LocalSteps,
			t.StepCountReason,
			status.FormatSeconds(t.TrainingSeconds),
			time.Duration(t.SecondsPerLocalStep*float64(time.Second)).Round(time.Microsecond),
			waited)
		if t.AppliedNeighborFlows > 0 {
			p.AddLine("  mixed", "with %d parameter messages from neighbours, %d of which arrived late",
				t.AppliedNeighborFlows, t.LateNeighborFlows)
		}
	}
	p.AddShownTexts(a.ShownTexts)
	p.AddLossLine(a.RecentLosses)
	if len(a.RoundsByResult) > 0 {
		var all []string
		for result, n := range a.RoundsByResult {
			all = append(all, fmt.Sprintf("%s %d", result, n))
		}
		slices.Sort(all)
		p.AddLine("rounds", "%s", strings.Join(all, ", "))
	}
	p.AddRefusalLines(a.RecentRefusals)
	return p.Text.String()
}

// noTaskReason describes why the agent has no task.
func (a *agentStatus) noTaskReason() string {
	switch a.MissingAnnouncement {
	case "":
		return "no task yet: the agent waits for the coordinator's announcement"
	case announcement.UntrustedKey:
		return "no task: the announcement is signed with a different key (see above)"
	case announcement.OtherFederation:
		return "no task: the federation has a different name (see above)"
	case announcement.AccessDenied:
		return "no task: the broker's access rules block the announcement (see above)"
	case announcement.NotRetained:
	}
	return "no task: the broker has no retained announcement (see above)"
}

// idleReason describes why the device has no work.
func (a *agentStatus) idleReason() string {
	switch {
	case a.AnnouncedPhase == wire.PhaseFinished.String():
		return "the training run is finished; this device waits for a new run (start one with `coordinator task apply`)"
	case a.TaskFitness != agentround.TaskFitnessOK:
		return "this device does not participate because it cannot train for the task"
	case a.AnnouncedPhase == wire.PhaseOpen.String():
		return "this device was not selected for the current round, or it has finished its work"
	}
	return "between rounds: this device waits for the selection of participants for the next round"
}

// drawInputsWithUnusedValues adds a paragraph for each input with unused values.
func (a *agentStatus) drawInputsWithUnusedValues(p *status.Page) {
	if a.RowsMissingValues > 0 {
		p.AddLine("  skipped", "%d rows because of a missing value", a.RowsMissingValues)
	}
	shown, more := 0, 0
	for _, in := range a.Inputs {
		if len(in.UnusedByReason) == 0 {
			continue
		}
		if shown++; shown > observe.MaxJoinedNames {
			more++
			continue
		}
		text := data.ColumnReport{Used: in.UsedValues, Unused: in.UnusedByReason}.String()
		if in.LastUnusedLocation != "" {
			text += "; last: " + in.LastUnusedLocation
			if in.LastUnusedProblem != "" {
				text += ": " + in.LastUnusedProblem
			}
		}
		p.AddParagraph("  "+cmp.Or(in.Name, "unreadable"), text)
	}
	if more > 0 {
		p.AddLine("", "and %d more", more)
	}
}
