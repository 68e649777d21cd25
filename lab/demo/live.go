package demo

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/fedmesh/fedmesh/wire"
)

// live shows progress in lines that it redraws on a terminal. Between two calls the cursor is at the start of the first
// line.
type live struct {
	plain
	size   func() (width, height int) // returns the current size of the terminal
	stderr io.Writer
	all    []string // names of all agents

	mu    sync.Mutex // protects the fields below, because log lines arrive from other goroutines
	drawn []string   // lines that are currently on the terminal
}

const barWidth = 30 // maximum width of the progress bar; it is narrower on a small terminal

func (d *live) start(h heading) {
	d.all = h.Stations
	d.plain.start(h)
}

func (d *live) gathering(p *progress) {
	d.draw(fmt.Sprintf("waiting for agents: %d of %d ready", p.Agents, len(d.all)))
}

func (d *live) standardised(rows, agents int) {
	d.draw()
	d.plain.standardised(rows, agents)
}

func (d *live) round(p *progress) { d.paint(p) }
func (d *live) model(p *progress) { d.paint(p) }

func (d *live) result(r *Result) {
	d.leave()
	d.plain.result(r)
}

func (d *live) failed() { d.leave() }

// Write writes log lines above the progress lines.
func (d *live) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clear()
	n, err := d.stderr.Write(p)
	d.redraw()
	return n, err
}

// paint draws the bar, the numbers, and a mark for each agent: ● update received, ◌ training, · not drawn.
func (d *live) paint(p *progress) {
	width, _ := d.size()
	numbers := fmt.Sprintf(" round %d/%d  loss %s  R² %s  %.1f s", p.Round, p.Rounds, number(p.Loss), number(p.R2),
		p.Elapsed.Seconds())
	room := max(0, min(barWidth, width-1-len([]rune(numbers))))
	done := room * p.Round / max(p.Rounds, 1)
	bar := strings.Repeat("█", done) + strings.Repeat("░", room-done)
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
	d.draw(append([]string{bar + numbers}, columns(marks, width)...)...)
}

// columns arranges short texts in as many columns as fit into width.
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

// draw replaces the progress lines on the terminal. Without arguments it removes them.
func (d *live) draw(lines ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clear()
	d.drawn = lines
	d.redraw()
}

// redraw draws the progress lines again. It cuts them to the size of the terminal, because lines that wrap or scroll
// away cannot be erased.
func (d *live) redraw() {
	width, height := d.size()
	d.drawn = d.drawn[:min(len(d.drawn), max(height-1, 0))]
	if len(d.drawn) == 0 {
		return
	}
	var b strings.Builder
	for _, line := range d.drawn {
		if r := []rune(line); len(r) >= width {
			line = string(r[:max(width-1, 0)])
		}
		b.WriteString(line + "\n")
	}
	fmt.Fprintf(&b, "\x1b[%dA", len(d.drawn))
	_, _ = io.WriteString(d.w, b.String())
}

// clear erases the progress lines from the terminal.
func (d *live) clear() {
	if len(d.drawn) > 0 {
		_, _ = io.WriteString(d.w, "\r\x1b[J")
	}
}

// leave moves the cursor below the progress lines and leaves them on the terminal.
func (d *live) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := len(d.drawn); n > 0 {
		fmt.Fprintf(d.w, "\r\x1b[%dB", n)
	}
	d.drawn = nil
}
