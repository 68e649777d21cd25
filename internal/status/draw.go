package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/round/evaluation"
	"github.com/fedmesh/fedmesh/wire"
)

// Draw returns the picture as text.
func (c *coordinatorPicture) Draw(width int) string {
	p := &page{width: width}
	p.head("coordinator", fmt.Sprintf("%s, federation %s", c.Version, c.Federation), c.At, c.Started, c.Problems,
		c.Broker)
	if t := c.Task; t.Next > 0 {
		p.line("task", "version %d; version %d takes over when the round under way is over", t.Version, t.Next)
	} else if t.Version > 1 {
		p.line("task", "version %d, applied %s", t.Version, t.At.Local().Format(time.DateTime))
	}
	of := ""
	if c.Wanted > 0 {
		of = fmt.Sprintf(" of %d  %s", c.Wanted, bar(float64(c.Aggregations), float64(c.Wanted)))
	}
	p.line("model", "version %d%s", c.Aggregations, of)
	if f := figures("R²", c.R2, "accuracy", c.Accuracy, "risk", c.Risk); f != "" {
		p.line("  held out", "%s", f)
	}
	p.evaluation(c.Evaluation)
	p.losses(c.Losses)
	if c.Stop != nil {
		p.paragraph("ends", c.Stop.draw(c))
	}
	p.line("agents", "%d may be drawn, of %d in the list", c.Agents, c.Enrolled)
	if c.Estimated > 0 {
		p.line("", "about %.0f answer if all are asked; %.3g %% were", c.Estimated, 100*c.Asked)
	}
	if len(c.Unfit) > 0 {
		var all []string
		for _, u := range c.Unfit {
			all = append(all, u.String())
		}
		p.paragraph("  unfit", names(all))
	}
	if len(c.SitOut) > 0 {
		var all []string
		for _, s := range c.SitOut {
			all = append(all, fmt.Sprintf("%s (%s, up to round %d)", s.Agent, s.Reason, s.Until))
		}
		p.line("  sit out", "%s", names(all))
	}
	if len(c.Large) > 0 {
		var all []string
		for _, l := range c.Large {
			all = append(all, l.String())
		}
		p.paragraph("  large", "unusually large updates: "+names(all))
	}
	if m := c.Mesh; m != nil {
		p.line("mesh", "%d agents, %d edges, connected parts: %d   %s", m.Agents, m.Edges, m.Parts,
			figures("|λ₂|", m.SecondEigenvalue, "α", m.Alpha))
	}
	if r := c.Rollout; r != nil {
		p.line("predictions", "all agents with model %s", r.Released)
		if r.Candidate != "" {
			began := "" // not known after a restart
			if r.Agents > 0 {
				began = fmt.Sprintf(", %d at its begin,", r.Agents)
			}
			p.line("", "a share of them%s with model %s", began, r.Candidate)
		}
		if r.Last != "" {
			p.line("", "the rollout of model %s has ended: %s", r.Of, r.Last)
		}
	}
	c.drawRound(p)
	p.refusals(c.Refusals)
	return p.text.String()
}

// evaluation adds what agents have said of a model.
func (p *page) evaluation(e *evaluated) {
	if e == nil || e.Agents == 0 {
		return
	}
	p.line("  at agents", "%s   (version %d, %d rows of %d agents)", figures("R²", e.R2, "accuracy", e.Accuracy, "F1",
		e.F1, "risk", &e.Risk), e.Version, e.Rows, e.Agents)
	if text := e.Told(); text != "" {
		p.line("", "%s", text)
	}
	for _, of := range []struct {
		name string
		*evaluation.Spread
	}{{"accuracy", e.AgentAccuracy}, {"risk", e.AgentRisk}} {
		if s := of.Spread; s != nil {
			p.line("", "%s by agent: mean %.4g, median %.4g, worst %.4g", of.name, s.Mean, s.Q50, s.Worst)
			return
		}
	}
}

func (c *coordinatorPicture) drawRound(p *page) {
	phase := c.Phase
	if c.Ended != "" {
		phase += " (" + c.Ended + ")"
	}
	p.line("phase", "%s for %s", phase, span(c.At.Sub(c.PhaseSince)))
	if c.Ended != "" {
		p.paragraph("", "to continue: `coordinator task set KEY=VALUE` with the key that ended the run (round.rounds, "+
			"or a key of round.stop; 0 is without limit)")
	}
	if c.Waits != nil {
		p.paragraph("", c.Waits.draw(c.At))
	}
	if c.Round == 0 || c.Opened.IsZero() {
		return
	}
	more := ""
	if c.Attempt > 1 {
		more = fmt.Sprintf(", attempt %d", c.Attempt)
	}
	if c.Abandoned > 0 {
		more += fmt.Sprintf("; abandoned since the start: %d", c.Abandoned)
	}
	p.line(fmt.Sprintf("round %d", c.Round), "%s%s", c.Kind, more)
	by := c.byState()
	done := len(by[accepted])
	if c.Draws > 0 {
		most := min(c.Draws, len(c.Participants)) // fewer, where an agent is drawn twice
		p.line("  updates", "%s %d of at most %d", bar(float64(done), float64(most)), done, most)
	} else {
		p.line("  updates", "%s %d of %d", bar(float64(done), float64(len(c.Participants))), done, len(c.Participants))
	}
	if c.Phase == "collecting" {
		took := c.At.Sub(c.Opened)
		p.line("  time", "%s %s of %s", bar(took.Seconds(), c.Deadline), span(took), seconds(c.Deadline))
	}
	for _, label := range []string{accepted, working, invited, late, mixed, missing, out} {
		if all := by[label]; len(all) > 0 {
			p.line("  "+label, "%s", names(all))
		}
	}
}

// States that are shown instead of invited and working: late when an agent takes more than twice as long as the
// others, missing and mixed when the round is over.
const (
	late    = "late"
	missing = "missing"
	mixed   = "mixed" // where agents mix, and this one was not drawn to send
)

// byState lists the participants by the state that is shown.
func (c *coordinatorPicture) byState() map[string][]string {
	by := map[string][]string{}
	took, slow := c.At.Sub(c.Opened).Seconds(), c.slow()
	for _, a := range c.Participants {
		text, state := a.Agent, a.State
		switch state {
		case working:
			text += fmt.Sprintf(" (at work for %s)", seconds(took-a.After))
		case invited:
			text += " (silent)"
		case accepted:
			if a.Steps > 0 {
				text += fmt.Sprintf(" (E=%d)", a.Steps)
			}
		case out:
			text += " (" + a.Why + ")"
		}
		if state == working || state == invited {
			switch {
			case c.Phase != "collecting" && c.Draws > 0 && state == working:
				text, state = a.Agent, mixed
			case c.Phase != "collecting":
				text, state = a.Agent, missing
			case c.Draws > 0: // an agent that was not drawn to send only waits for the end of the round
			case slow > 0 && took > slow:
				state = late
			}
		}
		by[state] = append(by[state], text)
	}
	return by
}

// slow is twice the median time in seconds until an update was accepted; 0 before the first.
func (c *coordinatorPicture) slow() float64 {
	var all []float64
	for _, a := range c.Participants {
		if a.State == accepted {
			all = append(all, a.After)
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return 2 * all[len(all)/2]
}

// Draw returns the picture as text.
func (a *agentPicture) Draw(width int) string {
	p := &page{width: width}
	p.head("agentd", fmt.Sprintf("%s, agent %s of federation %s", a.Version, a.ID, a.Federation), a.At, a.Started,
		a.Problems, a.Broker)
	switch a.Fit {
	case "":
		p.line("data", "%s", a.taskless())
	case "fit":
		p.line("data", "%d rows fit the task", a.Rows)
	default:
		p.line("data", "cannot do the task: %s", a.Fit)
	}
	a.drawInputs(p)
	if m := a.Model; m != nil {
		pinned := ""
		if m.Pinned {
			pinned = ", pinned: `agentd model use newest` ends that"
		}
		p.line("predicts", "with model %d/%d, for %s%s", m.Run, m.Version, a.At.Sub(m.Since).Round(time.Second), pinned)
	}
	if c := a.Certificate; c != nil {
		p.line("certificate", "expires %s UTC, in %s", c.UTC().Format(time.DateTime), days(c.Sub(a.At)))
	}
	if b := a.Budget; b != nil {
		p.line("budget", "%s %.1f of %.1f MB in %s", bar(float64(b.Used), float64(b.Limit)), float64(b.Used)/1e6,
			float64(b.Limit)/1e6, b.Month)
	}
	if w := a.Work; w == nil && a.Round > 0 {
		p.line(fmt.Sprintf("round %d", a.Round), "%s", a.idle())
	} else if w != nil {
		doing := "at work"
		if w.Done {
			doing = "sending its update"
		}
		took, all := a.At.Sub(w.Since), w.Until.Sub(w.Since)
		p.line(fmt.Sprintf("round %d", w.Round), "%s, %s", w.Kind, doing)
		p.line("  time", "%s %s of %s", bar(took.Seconds(), all.Seconds()), span(took), span(all))
	}
	if w := a.Waits; w != nil {
		p.line("  waits", "for %s: this device trains for federation %s", span(a.At.Sub(w.Since)), w.For)
	}
	if t := a.Trained; t != nil {
		waited := ""
		if t.Waited > 0 {
			waited = fmt.Sprintf(", after waits of %s for other federations", seconds(t.Waited))
		}
		p.line("last trained", "round %d: E=%d steps (by %s) in %s, %s each%s", t.Round, t.LocalSteps, t.Because,
			seconds(t.Took), time.Duration(t.StepTime*float64(time.Second)).Round(time.Microsecond), waited)
		if t.Flows > 0 {
			p.line("  mixed", "%d flows of neighbours, %d of them late", t.Flows, t.Late)
		}
	}
	p.losses(a.Losses)
	if len(a.Results) > 0 {
		var all []string
		for result, n := range a.Results {
			all = append(all, fmt.Sprintf("%s %d", result, n))
		}
		slices.Sort(all)
		p.line("rounds", "%s", strings.Join(all, ", "))
	}
	p.refusals(a.Recent)
	return p.text.String()
}

// taskless describes why the agent knows no task.
func (a *agentPicture) taskless() string {
	switch a.Missing {
	case "":
		return "no task yet: the agent waits for the coordinator's announcement"
	case agent.MissingKey:
		return "no task: the announcement is signed with another key (see above)"
	case agent.MissingFederation:
		return "no task: the federation has another name (see above)"
	case agent.MissingAccess:
		return "no task: the broker's access rules withhold it (see above)"
	case agent.MissingNone:
	}
	return "no task: the broker has no announcement (see above)"
}

// idle says why a device without work has none.
func (a *agentPicture) idle() string {
	switch {
	case a.Phase == wire.PhaseFinished.String():
		return "the run is finished; this device waits for a new one (`coordinator task apply` begins it)"
	case a.Fit != "fit":
		return "this device takes no part, since it cannot do the task"
	case a.Phase == wire.PhaseOpen.String():
		return "this device was not drawn, or its part is done"
	}
	return "between two rounds: this device waits to be drawn"
}

// drawInputs shows the inputs of which something was not used.
func (a *agentPicture) drawInputs(p *page) {
	if a.Lacking > 0 {
		p.line("  not made", "%d rows, which lack a value", a.Lacking)
	}
	shown, more := 0, 0
	for _, in := range a.Inputs {
		if len(in.Unused) == 0 {
			continue
		}
		if shown++; shown > listed {
			more++
			continue
		}
		text := data.ColumnReport{Used: in.Used, Unused: in.Unused}.String()
		if in.Where != "" {
			text += "; the last: " + in.Where
			if in.Problem != "" {
				text += ": " + in.Problem
			}
		}
		p.paragraph("  "+cmp.Or(in.Name, "unreadable"), text)
	}
	if more > 0 {
		p.line("", "and %d others", more)
	}
}
