package coordinatorstatus

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/internal/status"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/evaluation"
)

// Draw returns the status page as text, width columns wide.
func (c *coordinatorStatus) Draw(width int) string {
	p := &status.Page{Width: width}
	p.AddHeadLines("coordinator", fmt.Sprintf("%s, federation %s", c.ProgramVersion, c.Federation), c.GeneratedAt,
		c.Started,
		c.Conditions, c.Broker)
	if t := c.Task; t.NextVersion > 0 {
		p.AddLine("task", "version %d; version %d takes effect after the current round", t.Version,
			t.NextVersion)
	} else if t.Version > 1 {
		p.AddLine("task", "version %d, applied %s", t.Version, t.AppliedAt.Local().Format(time.DateTime))
	}
	of := ""
	if c.MaxAggregations > 0 {
		of = fmt.Sprintf(" of %d  %s", c.MaxAggregations, status.ProgressBar(float64(c.Aggregations),
			float64(c.MaxAggregations)))
	}
	p.AddLine("model", "version %d%s", c.Aggregations, of)
	if f := status.FormatNamedNumbers("R²", c.HeldOutR2, "accuracy", c.HeldOutAccuracy, "risk",
		c.HeldOutRisk); f != "" {
		p.AddLine("  held out", "%s", f)
	}
	drawAgentEvaluation(p, c.LastAgentEvaluation)
	p.AddShownTexts(c.ShownTexts)
	p.AddLossLine(c.Losses)
	if c.StopProgress != nil {
		p.AddParagraph("ends", c.describeStopProgress())
	}
	p.AddLine("agents", "%d eligible for rounds, %d enrolled", c.EligibleAgents, c.EnrolledAgents)
	if c.EstimatedHelloAgents > 0 {
		p.AddLine("", "about %.0f available (estimate from the replies of %.3g %% of the agents)",
			c.EstimatedHelloAgents,
			100*c.HelloAskedAgentShare)
	}
	if len(c.Unfit) > 0 {
		var all []string
		for _, u := range c.Unfit {
			all = append(all, u.String())
		}
		p.AddParagraph("  unfit", observe.JoinNames(all))
	}
	if len(c.SidelinedAgents) > 0 {
		var all []string
		for _, s := range c.SidelinedAgents {
			all = append(all, fmt.Sprintf("%s (%s, excluded until round %d)", s.Agent, s.Reason, s.LastSidelinedRound))
		}
		p.AddLine("  sit out", "%s", observe.JoinNames(all))
	}
	if len(c.LargeUpdates) > 0 {
		var all []string
		for _, l := range c.LargeUpdates {
			all = append(all, l.String())
		}
		p.AddParagraph("  large", "unusually large updates: "+observe.JoinNames(all))
	}
	if m := c.Mesh; m != nil {
		p.AddLine("mesh", "%d agents, %d pairs of neighbours, connected components: %d   %s", m.Agents, m.Edges,
			m.ConnectedComponents,
			status.FormatNamedNumbers("|λ₂|", m.SecondEigenvalue, "α", m.EigenvalueRatio))
	}
	if r := c.Rollout; r != nil {
		p.AddLine("predictions", "all agents use model %s", r.ReleasedModel)
		if r.Candidate != "" {
			began := "" // the number of agents at the start is unknown after a restart
			if r.CandidateAgents > 0 {
				began = fmt.Sprintf(" (%d at the start)", r.CandidateAgents)
			}
			p.AddLine("", "the agents of the current rollout%s use model %s", began, r.Candidate)
		}
		if r.LastRolloutOutcome != "" {
			p.AddLine("", "the rollout of model %s ended: %s", r.LastRolloutModel, r.LastRolloutOutcome)
		}
	}
	c.drawCurrentRound(p)
	p.AddRefusalLines(c.Refusals)
	return p.Text.String()
}

// describeStopProgress lists the stop rules with the progress toward each. The first rule that is met ends the run.
func (c *coordinatorStatus) describeStopProgress() string {
	s := c.StopProgress
	var all []string
	add := func(on bool, format string, args ...any) {
		if on {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	target := func(name string, want float64, is *float64, sign string) {
		now := "unknown"
		if is != nil {
			now = fmt.Sprintf("now %.4g", *is)
		}
		add(want > 0, "%s %s %.4g (%s)", name, sign, want, now)
	}
	target("risk", s.TargetRisk, s.JudgedRisk, "≤")
	target("R²", s.TargetR2, c.HeldOutR2, "≥")
	target("accuracy", s.TargetAccuracy, c.HeldOutAccuracy, "≥")
	best := ""
	if s.BestRisk != nil {
		best = fmt.Sprintf(" (best risk %.4g, version %d)", *s.BestRisk, s.BestModelVersion)
	}
	add(s.PatienceAggregations > 0, "aggregations without improvement: %d of at most %d%s",
		s.AggregationsWithoutImprovement,
		s.PatienceAggregations,
		best)
	add(s.MaxRunSeconds > 0, "time %s of at most %s", status.FormatDuration(c.GeneratedAt.Sub(s.CountingStartedAt)),
		status.FormatSeconds(s.MaxRunSeconds))
	add(s.MaxBytes > 0, "transferred data %.1f of at most %.1f MB", float64(s.UsedBytes)/1e6, float64(s.MaxBytes)/1e6)
	return strings.Join(all, "; ")
}

// drawAgentEvaluation adds the evaluation of a model by the agents.
func drawAgentEvaluation(p *status.Page, e *coordinator.ModelEvaluation) {
	if e == nil || e.ReportingAgents == 0 {
		return
	}
	p.AddLine("  at agents", "%s   (model version %d, measured on %d rows of %d agents)",
		status.FormatNamedNumbers("R²", e.R2,
			"accuracy",
			e.Accuracy,
			"F1",
			e.MacroF1, "risk", &e.Risk), e.Version, e.Rows, e.ReportingAgents)
	if text := e.FormatExternalMetrics(); text != "" {
		p.AddLine("", "%s", text)
	}
	for _, of := range []struct {
		name string
		*evaluation.AgentMetricDistribution
	}{{"accuracy", e.AgentAccuracy}, {"risk", e.AgentRisk}} {
		if s := of.AgentMetricDistribution; s != nil {
			p.AddLine("", "%s by agent: mean %.4g, median %.4g, worst %.4g", of.name, s.Mean, s.Q50, s.Worst)
			return
		}
	}
}

func (c *coordinatorStatus) drawCurrentRound(p *status.Page) {
	phase := c.Phase
	if c.RunEndReason != "" {
		phase += " (" + c.RunEndReason + ")"
	}
	p.AddLine("phase", "%s for %s", phase, status.FormatDuration(c.GeneratedAt.Sub(c.PhaseSince)))
	if c.RunEndReason != "" {
		p.AddParagraph("",
			"to continue, raise the limit that ended the run (round.rounds or a key of round.stop; 0 means no "+
				"limit): `coordinator task set KEY=VALUE`")
	}
	if c.ScheduleWait != nil {
		p.AddParagraph("", describeScheduleWait(c.ScheduleWait, c.GeneratedAt))
	}
	if c.Round == 0 || c.RoundOpenedAt.IsZero() {
		return
	}
	more := ""
	if c.RoundAttempt > 1 {
		more = fmt.Sprintf(", attempt %d", c.RoundAttempt)
	}
	if c.AbandonedRounds > 0 {
		more += fmt.Sprintf("; rounds abandoned since the start: %d", c.AbandonedRounds)
	}
	p.AddLine(fmt.Sprintf("round %d", c.Round), "%s%s", c.RoundKind, more)
	by := c.participantsByState()
	done := len(by[stateAccepted])
	if c.UploaderDraws > 0 {
		most := min(c.UploaderDraws, len(c.Participants)) // the number is smaller if an agent is drawn twice
		p.AddLine("  updates", "%s %d of at most %d", status.ProgressBar(float64(done), float64(most)), done, most)
	} else {
		p.AddLine("  updates", "%s %d of %d", status.ProgressBar(float64(done), float64(len(c.Participants))), done,
			len(c.Participants))
	}
	if c.Phase == "collecting" {
		took := c.GeneratedAt.Sub(c.RoundOpenedAt)
		p.AddLine("  time", "%s %s of %s", status.ProgressBar(took.Seconds(), c.RoundTimeoutSeconds),
			status.FormatDuration(took),
			status.FormatSeconds(c.RoundTimeoutSeconds))
	}
	for _, label := range []string{stateAccepted, stateWorking, stateInvited, stateLate, stateMixed, stateMissing,
		stateOut} {
		if all := by[label]; len(all) > 0 {
			p.AddLine("  "+label, "%s", observe.JoinNames(all))
		}
	}
}

// describeScheduleWait describes the window or the new rows that the next round waits for.
func describeScheduleWait(w *round.ScheduleWait, now time.Time) string {
	if !w.WindowOpensAt.IsZero() {
		return fmt.Sprintf("waiting for the next time window, which opens on %s, in %s",
			w.WindowOpensAt.Format("Mon 15:04 MST"),
			status.FormatDuration(w.WindowOpensAt.Sub(now)))
	}
	text := fmt.Sprintf("waiting for new rows: %d of %d required agents have at least %d unused rows",
		w.AgentsWithNewRows,
		w.RequiredAgents, w.RequiredNewRows)
	if w.AgentsWithoutRowCount > 0 {
		text += fmt.Sprintf("; %d agents have not reported their number of rows", w.AgentsWithoutRowCount)
	}
	return text
}

// Display states that replace "invited" and "at work". An agent is late after twice the median time of accepted
// updates. After the round has ended, the agent is missing or mixed.
const (
	stateLate    = "late"
	stateMissing = "missing"
	stateMixed   = "mixed" // the agent has mixed but was not drawn to send an update
)

// participantsByState lists the participants by their displayed state.
func (c *coordinatorStatus) participantsByState() map[string][]string {
	by := map[string][]string{}
	took, slow := c.GeneratedAt.Sub(c.RoundOpenedAt).Seconds(), c.lateAfterSeconds()
	for _, a := range c.Participants {
		text, state := a.Agent, a.State
		switch state {
		case stateWorking:
			text += fmt.Sprintf(" (at work for %s)", status.FormatSeconds(took-a.SecondsToState))
		case stateInvited:
			text += " (silent)"
		case stateAccepted:
			if a.LocalSteps > 0 {
				text += fmt.Sprintf(" (E=%d)", a.LocalSteps)
			}
		case stateOut:
			text += " (" + a.OutReason + ")"
		}
		if state == stateWorking || state == stateInvited {
			switch {
			case c.Phase != "collecting" && c.UploaderDraws > 0 && state == stateWorking:
				text, state = a.Agent, stateMixed
			case c.Phase != "collecting":
				text, state = a.Agent, stateMissing
			case c.UploaderDraws > 0: // an agent that was not drawn to send only waits for the end of the round
			case slow > 0 && took > slow:
				state = stateLate
			}
		}
		by[state] = append(by[state], text)
	}
	return by
}

// lateAfterSeconds returns twice the median time from the announcement to an accepted update, in seconds. It returns 0
// if no update has been accepted yet.
func (c *coordinatorStatus) lateAfterSeconds() float64 {
	var all []float64
	for _, a := range c.Participants {
		if a.State == stateAccepted {
			all = append(all, a.SecondsToState)
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return 2 * all[len(all)/2]
}
