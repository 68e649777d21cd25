package datacheck

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/data/survey"
)

// Draw writes the result as text.
func (r *Result) Draw(to io.Writer) error {
	var b strings.Builder
	if r.Task != nil {
		target := "no target"
		if r.Task.Target != "" {
			target = fmt.Sprintf("target %q", r.Task.Target)
		}
		fmt.Fprintf(&b, "task    %s, from %s: %d features, %s\n", r.Task.Name, r.Task.Origin, len(r.Task.Features),
			target)
	} else {
		fmt.Fprintf(&b, "task    unknown: %s\n        only the source is described below; `coordinator task show` "+
			"writes a task for --task FILE\n", r.NoTaskReason)
	}
	fmt.Fprintf(&b, "data    %s: %s%s\n", r.SourceSurvey.SourcePath, r.lineCountText(),
		formatTimeSpan(r.SourceSurvey.EarliestTime, r.SourceSurvey.LatestTime))
	r.drawConfigChanges(&b)
	r.drawFaults(&b)
	if len(r.SourceSurvey.Columns) > 0 {
		b.WriteString("\n")
		drawColumnTable(&b, "COLUMN", r.SourceSurvey.Columns, true)
	}
	if n := len(r.SourceSurvey.UnwantedColumns); n > 0 {
		const most = 20
		fmt.Fprintf(&b, "other columns: %s", joinLimited(r.SourceSurvey.UnwantedColumns, most))
		if n > most {
			fmt.Fprintf(&b, " and %d more", n-most)
		}
		b.WriteString("\n")
	}
	if r.Rows != nil {
		r.Rows.drawRowSummary(&b)
	}
	r.drawParticipationVerdict(&b)
	_, err := io.WriteString(to, b.String())
	return err
}

// lineCountText returns the number of lines or readings as text.
func (r *Result) lineCountText() string {
	one, many := "line", "lines"
	if r.linesAreReadings {
		one, many = "reading", "readings"
	}
	if r.SourceSurvey.LineCount == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", r.SourceSurvey.LineCount, many)
}

func (r *Result) drawConfigChanges(b *strings.Builder) {
	if len(r.SourceSurvey.ConfigChanges) == 0 {
		return
	}
	b.WriteString("\nthe configuration does not match the data file; the results below assume these changes of the " +
		"configuration:\n")
	for _, c := range r.SourceSurvey.ConfigChanges {
		if c.Key == "" {
			fmt.Fprintf(b, "  %s\n", c.Reason)
			continue
		}
		fmt.Fprintf(b, "  set data.%s: %q (%s)\n", c.Key, c.Value, c.Reason)
	}
}

func (r *Result) drawFaults(b *strings.Builder) {
	for _, f := range r.SourceSurvey.Faults {
		name := "the source"
		if f.Column != "" {
			name = fmt.Sprintf("column %q", truncateText(f.Column))
		}
		fmt.Fprintf(b, "\n%s: %d %s\n", name, f.Count, f.Reason)
		for _, one := range f.FirstFaults {
			fmt.Fprintf(b, "  %s\n", formatFault(r.SourceSurvey.SourcePath, one))
		}
		if more := f.Count - len(f.FirstFaults); more > 0 {
			fmt.Fprintf(b, "  and %d more", more)
			if f.LastLine > 0 {
				fmt.Fprintf(b, ", the last of them in line %d", f.LastLine)
				if f.LastFile != "" {
					fmt.Fprintf(b, " of %s", quoteUnprintable(f.LastFile))
				}
			}
			b.WriteString("\n")
		}
		if f.Remedy != "" {
			fmt.Fprintf(b, "  → %s\n", f.Remedy)
		}
	}
}

func (r *RowSummary) drawRowSummary(b *strings.Builder) {
	fmt.Fprintf(b, "\nrows    %d%s\n", r.MadeRows, formatTimeSpan(r.FirstRowTime, r.LastRowTime))
	if r.HeldOutRows > 0 {
		fmt.Fprintf(b, "        %d rows for training, %d held out for evaluation", r.TrainingRows, r.HeldOutRows)
		if !r.FirstHeldOutTime.IsZero() {
			fmt.Fprintf(b, ", from %s onwards", r.FirstHeldOutTime.Format(time.RFC3339))
		}
		b.WriteString("\n")
	}
	var lacking, unused, last []string
	for _, u := range r.UnusedValueCounts {
		name := cmp.Or(u.Column, "unreadable") // unreadable lines and payloads have no column
		if u.Reason == grid.ReasonGap || u.Reason == grid.ReasonNoLabel {
			lacking = append(lacking, fmt.Sprintf("%s %d", name, u.Count))
			continue
		}
		unused = append(unused, fmt.Sprintf("%s %d %s", name, u.Count, u.Reason))
		switch u.Reason {
		// For these reasons, which are not faults of a single line, the text also contains the location of the last
		// unused value.
		case grid.ReasonDuplicate, grid.ReasonStuck, grid.ReasonJump, grid.ReasonNoRoom:
			last = append(last, fmt.Sprintf("%s %s at %s", name, u.Reason, u.LastUnusedLocation))
		}
	}
	for _, part := range []struct {
		name string
		all  []string
	}{{"rows skipped because of a missing value", lacking}, {"unused values", unused}, {"last unused values", last}} {
		if len(part.all) > 0 {
			fmt.Fprintf(b, "        %s: %s\n", part.name, strings.Join(part.all, ", "))
		}
	}
	for _, text := range r.Warnings {
		fmt.Fprintf(b, "        warning: %s\n", text)
	}
	for _, name := range r.ConstantColumns() {
		fmt.Fprintf(b, "        warning: column %s %s\n", safeTerminalText(name), constantColumnWarning)
	}
	if r.MadeRows > 0 {
		b.WriteString("\n")
		drawColumnTable(b, "FEATURE", r.Columns, false)
	}
}

// constantColumnWarning describes a column that is returned by [RowSummary.ConstantColumns], and the possible remedies.
const constantColumnWarning = "has the same value in every row and is not scaled unless it varies on other devices. " +
	"Remove the column from task.features. If its differences are too small for float32, subtract a constant from " +
	"its values in the file"

func (r *Result) drawParticipationVerdict(b *strings.Builder) {
	switch {
	case r.DeclineReason == "" && r.Task != nil:
		b.WriteString("\nthis device would participate in the task\n")
	case r.Task != nil:
		fmt.Fprintf(b, "\nthis device would decline the task: %s\n", r.DeclineReason)
	case r.DeclineReason != "":
		fmt.Fprintf(b, "\nthe data source cannot be used: %s\n", r.DeclineReason)
	default:
		b.WriteString("\nthe data source can be read; whether this device can participate depends on the task\n")
	}
}

// formatTimeSpan formats a period as ", from … to …". formatTimeSpan returns "" if first is zero.
func formatTimeSpan(first, last time.Time) string {
	if first.IsZero() {
		return ""
	}
	return fmt.Sprintf(", from %s to %s", first.Format(time.RFC3339), last.Format(time.RFC3339))
}

// drawColumnTable writes an aligned table of columns. If source is set, the table has columns for missing and unused
// values.
func drawColumnTable(b *strings.Builder, head string, columns []survey.ColumnSummary, source bool) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s\tVALUES", head)
	if source {
		fmt.Fprint(w, "\tMISSING\tUNUSED")
	}
	fmt.Fprint(w, "\tMIN\tMEAN\tSIGMA\tMAX\tHISTOGRAM\n")
	for _, c := range columns {
		name := safeTerminalText(c.Name)
		if c.FileColumn != "" {
			name += " (" + safeTerminalText(c.FileColumn) + ")"
		}
		fmt.Fprintf(w, "%s\t%d", name, c.Used)
		if source {
			fmt.Fprintf(w, "\t%d\t%d", c.Missing, c.Unused)
		}
		switch {
		case c.Used == 0:
			fmt.Fprint(w, "\t\t\t\t\t\n")
		case len(c.Texts) > 0:
			const most = 8
			fmt.Fprintf(w, "\t\t\t\t\t%s%s", textValueHistogramBars(c), joinLimited(c.Texts, most))
			if len(c.Texts) > most {
				fmt.Fprint(w, ", …")
			}
			fmt.Fprint(w, "\n")
		default:
			fmt.Fprintf(w, "\t%.4g\t%.4g\t%.3g\t%.4g\t%s %s\n", c.Min, c.Mean, c.Sigma, c.Max,
				histogramBars(c.Histogram),
				c.Unit)
		}
	}
	_ = w.Flush() // cannot fail: b is in memory
	trimLineEnds(b)
}

// trimLineEnds removes trailing spaces from each line.
func trimLineEnds(b *strings.Builder) {
	lines := strings.Split(b.String(), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	b.Reset()
	b.WriteString(strings.Join(lines, "\n"))
}

// histogramBars draws a histogram with one Unicode block character per count. A zero count is drawn as a space.
func histogramBars(counts []int) string {
	heights, most := []rune(" ▁▂▃▄▅▆▇█"), slices.Max(counts)
	var s strings.Builder
	for _, n := range counts {
		h := 0
		if n > 0 {
			h = (n*(len(heights)-1) + most - 1) / most
		}
		s.WriteRune(heights[h])
	}
	return s.String()
}

// textValueHistogramBars returns the histogram of a text column. textValueHistogramBars returns "" if some texts were
// not counted.
func textValueHistogramBars(c survey.ColumnSummary) string {
	n := uint64(0)
	for _, count := range c.Histogram {
		n += uint64(count)
	}
	if n < c.Used {
		return ""
	}
	return histogramBars(c.Histogram) + " "
}

// joinLimited joins the first texts with commas. The parameter most is the maximum number of joined texts.
func joinLimited(texts []string, most int) string {
	all := make([]string, 0, most)
	for _, text := range texts[:min(len(texts), most)] {
		all = append(all, safeTerminalText(text))
	}
	return strings.Join(all, ", ")
}

func truncateText(text string) string {
	const most = 32
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}

// safeTerminalText truncates a text and quotes it if it contains unprintable characters.
func safeTerminalText(text string) string { return quoteUnprintable(truncateText(text)) }

// quoteUnprintable quotes a text that is empty or contains unprintable characters, so that it is safe to print on a
// terminal.
func quoteUnprintable(text string) string {
	if quoted := strconv.Quote(text); len(quoted) > len(text)+2 || text == "" {
		return quoted
	}
	return text
}
