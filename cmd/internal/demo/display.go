package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/fedmesh/fedmesh/wire"
)

// display shows a run: live on a terminal, in lines elsewhere, or as JSON.
type display interface {
	start(h heading)
	gathering(p *progress)
	standardised(rows, agents int)
	round(p *progress) // participants drawn, or an update came
	model(p *progress) // a round is done
	result(r *Result)
}

// heading says what is run.
type heading struct {
	Broker   string `json:"broker"`
	Embedded bool   `json:"embedded"`
	Agents   int    `json:"agents"`
	Features int    `json:"features"`
	Model    string `json:"model"`
	Rounds   int    `json:"rounds"`
	L        int    `json:"participants"`
	Seed     uint64 `json:"seed"`
}

// plain writes a line a round.
type plain struct{ w io.Writer }

func (d plain) start(h heading) {
	kind := "your broker"
	if h.Embedded {
		kind = "embedded broker"
	}
	fmt.Fprintf(d.w, "fedmesh demo: predict air pollution (log PM2.5) six hours ahead, from %d features\n", h.Features)
	fmt.Fprintf(d.w, "%d stations in Beijing are the agents; each has rows of its own quarter year, and keeps them\n", h.Agents)
	fmt.Fprintf(d.w, "%s %s, %s model, %d rounds with %d of %d agents, seed %d\n\n", kind, h.Broker, h.Model, h.Rounds, h.L, h.Agents, h.Seed)
}

func (d plain) gathering(*progress) {}

func (d plain) standardised(rows, agents int) {
	fmt.Fprintf(d.w, "columns standardised from sums over %d rows at %d agents; no row has left an agent\n", rows, agents)
}

func (d plain) round(*progress) {}

func (d plain) model(p *progress) {
	fmt.Fprintf(d.w, "round %3d/%d  loss %s  R² %s  took part: %s\n", p.Round, p.Rounds, number(p.Loss), number(p.R2), tookPart(p))
}

func (d plain) result(r *Result) { writeTable(d.w, r) }

// tookPart lists the participants with their E_k.
func tookPart(p *progress) string {
	var b strings.Builder
	for i, a := range p.Participants {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s (E=%d)", a, p.Done[a])
	}
	return b.String()
}

// live redraws three lines on a terminal.
type live struct {
	plain
	width int
	drawn bool
	all   []string // the agents
}

const barWidth = 30

func (d *live) gathering(p *progress) {
	d.draw(fmt.Sprintf("waiting for agents: %d of %d are there", p.Agents, len(d.all)))
}

func (d *live) standardised(rows, agents int) {
	d.clear()
	d.plain.standardised(rows, agents)
}

func (d *live) round(p *progress) { d.paint(p) }
func (d *live) model(p *progress) { d.paint(p) }

// paint draws the bar, the numbers, and a mark for each agent: ● its update is
// in, ◌ at work, · not drawn.
func (d *live) paint(p *progress) {
	done := barWidth * p.Round / max(p.Rounds, 1)
	bar := strings.Repeat("█", done) + strings.Repeat("░", barWidth-done)
	marks := make([]string, len(d.all))
	for i, a := range d.all {
		marks[i] = "· " + a
		if slices.Contains(p.Participants, wire.AgentID(a)) {
			marks[i] = "◌ " + a
		}
		if e, in := p.Done[wire.AgentID(a)]; in {
			marks[i] = fmt.Sprintf("● %s E=%d", a, e)
		}
	}
	lines := []string{fmt.Sprintf("%s round %d/%d  loss %s  R² %s  %.1f s", bar, p.Round, p.Rounds, number(p.Loss), number(p.R2), p.Elapsed.Seconds())}
	d.draw(append(lines, columns(marks, d.width)...)...)
}

// columns sets short texts in columns.
func columns(texts []string, width int) []string {
	const cell = 22
	perLine := max(1, (width-2)/cell)
	var lines []string
	for row := range slices.Chunk(texts, perLine) {
		line := " "
		for _, t := range row {
			line += " " + t + strings.Repeat(" ", max(0, cell-1-len([]rune(t))))
		}
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return lines
}

// draw replaces what was drawn last.
func (d *live) draw(lines ...string) {
	d.clear()
	for i, line := range lines {
		if r := []rune(line); len(r) >= d.width {
			lines[i] = string(r[:d.width-1]) // a line that wraps could not be cleared
		}
	}
	fmt.Fprintf(d.w, "\x1b7%s\n", strings.Join(lines, "\n"))
	fmt.Fprintf(d.w, "\x1b[%dA", len(lines))
	d.drawn = true
}

// clear removes what was drawn last; the cursor stands at its beginning.
func (d *live) clear() {
	if d.drawn {
		fmt.Fprint(d.w, "\r\x1b[J")
		d.drawn = false
	}
}

func (d *live) result(r *Result) {
	d.clear()
	d.plain.result(r)
}

// jsonLines writes one JSON object a line.
type jsonLines struct{ *json.Encoder }

func (d jsonLines) put(v any) { _ = d.Encode(v) } // a reader that went away is no reason to stop training

func (d jsonLines) start(h heading) {
	d.put(struct {
		Event string `json:"event"`
		heading
	}{"start", h})
}

func (d jsonLines) gathering(*progress) {}

func (d jsonLines) standardised(rows, agents int) {
	d.put(map[string]any{"event": "standardised", "rows": rows, "agents": agents})
}

func (d jsonLines) round(*progress) {}

func (d jsonLines) model(p *progress) {
	steps := map[wire.AgentID]int{}
	for _, a := range p.Participants {
		steps[a] = p.Done[a]
	}
	d.put(map[string]any{"event": "round", "round": p.Round, "loss": p.Loss, "r2": p.R2, "local_steps": steps})
}

func (d jsonLines) result(r *Result) { d.put(r) }

// number formats a loss or a score.
func number(x float64) string {
	if math.IsNaN(x) {
		return "  -   "
	}
	return fmt.Sprintf("%.4f", x)
}
