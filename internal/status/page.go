package status

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// page is text in lines, each with a label, no wider than the terminal.
type page struct {
	width int
	text  strings.Builder
}

const (
	labelWidth = 14
	barWidth   = 30
	listed     = 8 // names on a line, at most
)

// line adds a line, cut to the width.
func (p *page) line(label, format string, args ...any) {
	text := fmt.Sprintf("%-*s%s", labelWidth, label, fmt.Sprintf(format, args...))
	p.text.WriteString(strings.TrimRight(cut(text, p.width), " ") + "\n")
}

// cut shortens a text to a width.
func cut(text string, width int) string {
	if short := []rune(text); len(short) > width {
		return string(short[:max(width-1, 0)]) + "…"
	}
	return text
}

// paragraph adds a text on as many lines as it needs.
func (p *page) paragraph(label, text string) {
	room := max(p.width-labelWidth, 1)
	var line []rune
	flush := func() {
		p.line(label, "%s", string(line))
		label, line = "", nil
	}
	for _, word := range strings.Fields(text) {
		rest := []rune(word)
		if len(line) > 0 && len(line)+1+len(rest) > room {
			flush()
		}
		if len(line) > 0 {
			line = append(line, ' ')
		}
		for line = append(line, rest...); len(line) > room; { // a long path
			rest = line[room:]
			line = line[:room:room]
			flush()
			line = rest
		}
	}
	flush()
}

// bar draws a share of a whole.
func bar(done, of float64) string {
	share := 0.
	if of > 0 {
		share = min(max(done/of, 0), 1)
	}
	full := int(share * barWidth)
	return strings.Repeat("█", full) + strings.Repeat("░", barWidth-full)
}

// sparkline draws numbers, the least at the bottom and the most at the top.
func sparkline(xs []float64) string {
	const heights = "▁▂▃▄▅▆▇█"
	if len(xs) == 0 {
		return ""
	}
	least, most := slices.Min(xs), slices.Max(xs)
	var b strings.Builder
	for _, x := range xs {
		at := 0
		if most > least {
			at = int(math.Round((x - least) / (most - least) * 7))
		}
		b.WriteRune([]rune(heights)[at])
	}
	return b.String()
}

// names joins the first names, and counts the others.
func names[S ~string](all []S) string {
	shown := make([]string, 0, listed)
	for _, name := range all[:min(len(all), listed)] {
		shown = append(shown, string(name))
	}
	text := strings.Join(shown, ", ")
	if more := len(all) - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d others", more)
	}
	return text
}

// span is a duration for people.
func span(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	}
	return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
}

func seconds(s float64) string { return span(time.Duration(s * float64(time.Second))) }

// figures joins names and numbers; it leaves out unknown (nil) numbers.
func figures(pairs ...any) string {
	var all []string
	for p := range slices.Chunk(pairs, 2) {
		if x := p[1].(*float64); x != nil {
			all = append(all, fmt.Sprintf("%s %.4g", p[0], *x))
		}
	}
	return strings.Join(all, "   ")
}

// head adds the first lines of a page.
func (p *page) head(what, version string, at, started time.Time, problems []string, l link) {
	p.line(what, "%s, up %s", version, span(at.Sub(started)))
	for _, problem := range problems {
		p.paragraph("!", problem)
	}
	p.line("broker", "%s", l.state(at))
}

func (p *page) losses(xs []float64) {
	if len(xs) > 0 {
		p.line("loss", "%s  %.4g → %.4g over %d rounds", sparkline(xs), xs[0], xs[len(xs)-1], len(xs))
	}
}

func (p *page) refusals(all []refusal) {
	for i, r := range slices.Backward(all) {
		label := ""
		if i == len(all)-1 {
			label = "refused"
		}
		who := ""
		if r.Agent != "" {
			who = r.Agent + " "
		}
		p.line(label, "%s  round %d  %s%s: %s", r.At.Local().Format(time.TimeOnly), r.Round, who, r.What, r.Reason)
	}
}
