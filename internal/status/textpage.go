package status

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// Page is a text of labelled lines. No line is wider than the terminal.
type Page struct {
	Width int
	Text  strings.Builder
}

const (
	labelWidth = 14
	barWidth   = 30
)

// AddLine adds a line, truncated to the width of the page.
func (p *Page) AddLine(label, format string, args ...any) {
	text := fmt.Sprintf("%-*s %s", labelWidth-1, label, fmt.Sprintf(format, args...))
	p.Text.WriteString(strings.TrimRight(CutToWidth(text, p.Width), " ") + "\n")
}

// CutToWidth truncates a text to a width in characters.
func CutToWidth(text string, width int) string {
	if short := []rune(text); len(short) > width {
		return string(short[:max(width-1, 0)]) + "…"
	}
	return text
}

// AddParagraph adds a text, wrapped into as many lines as necessary. A label that is too long for the label column gets
// a separate line.
func (p *Page) AddParagraph(label, text string) {
	if len([]rune(label)) >= labelWidth {
		p.AddLine(label, "")
		label = ""
	}
	room := max(p.Width-labelWidth, 1)
	var line []rune
	flush := func() {
		p.AddLine(label, "%s", string(line))
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
		for line = append(line, rest...); len(line) > room; { // split words that are longer than a line, such as paths
			rest = line[room:]
			line = line[:room:room]
			flush()
			line = rest
		}
	}
	flush()
}

// ProgressBar renders the fraction done/of as a bar.
func ProgressBar(done, of float64) string {
	share := 0.
	if of > 0 {
		share = min(max(done/of, 0), 1)
	}
	full := int(share * barWidth)
	return strings.Repeat("█", full) + strings.Repeat("░", barWidth-full)
}

// Sparkline renders numbers as vertical bars, scaled between the minimum and the maximum.
func Sparkline(xs []float64) string {
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

// FormatDuration returns a rounded duration for display.
func FormatDuration(d time.Duration) string {
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

// FormatSeconds formats a number of seconds like FormatDuration.
func FormatSeconds(s float64) string { return FormatDuration(time.Duration(s * float64(time.Second))) }

// FormatNamedNumbers formats alternating names and numbers as one line. FormatNamedNumbers omits pairs whose number is
// nil.
func FormatNamedNumbers(pairs ...any) string {
	var all []string
	for p := range slices.Chunk(pairs, 2) {
		if x := p[1].(*float64); x != nil {
			all = append(all, fmt.Sprintf("%s %.4g", p[0], *x))
		}
	}
	return strings.Join(all, "   ")
}

// AddHeadLines adds the first lines of a status page: version, uptime, conditions and broker connection.
func (p *Page) AddHeadLines(what, version string, at, started time.Time, conditions []Condition, l Link) {
	p.AddLine(what, "%s, up %s", version, FormatDuration(at.Sub(started)))
	for _, c := range conditions {
		p.AddParagraph("!", fmt.Sprintf("%s (since %s); %s", c.Problem, c.Since.Local().Format(time.DateTime),
			c.Remedy))
	}
	p.AddLine("broker", "%s", l.describe(at))
}

// AddLossLine adds a line with the losses of the last rounds as a sparkline.
func (p *Page) AddLossLine(xs []float64) {
	if len(xs) > 0 {
		p.AddLine("loss", "%s  %.4g → %.4g over %d rounds", Sparkline(xs), xs[0], xs[len(xs)-1], len(xs))
	}
}

// AddShownTexts adds one line for each status text, sorted by name.
func (p *Page) AddShownTexts(textByName map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(textByName)) {
		p.AddLine(name, "%s", textByName[name])
	}
}

// AddRefusalLines adds one line per refusal, the newest first.
func (p *Page) AddRefusalLines(all []Refusal) {
	for i, r := range slices.Backward(all) {
		label := ""
		if i == len(all)-1 {
			label = "refused"
		}
		who := ""
		if r.Agent != "" {
			who = r.Agent + " "
		}
		p.AddLine(label, "%s  round %d  %s%s: %s", r.At.Local().Format(time.TimeOnly), r.Round, who, r.Kind, r.Reason)
	}
}
