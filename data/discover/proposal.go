package discover

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Proposal contains sections of both configuration files for the series of a survey. The user deletes the lines of
// values that the model does not need.
type Proposal struct {
	Agent       string // sections data and readings of agentd.yaml
	Coordinator string // section task of coordinator.yaml, with inputs
}

// Propose returns the proposal for the series, which are read from the broker at brokerURL.
func Propose(all []*Series, brokerURL string) Proposal {
	var agent, coordinator strings.Builder
	agent.WriteString("# Delete the lines of the inputs that the model does not need.\n" +
		"data:\n  source: mqtt\n  columns:\n")
	coordinator.WriteString("# Delete the lines of the inputs that the model does not need, choose the target, and " +
		"list the features.\ntask:\n  inputs:\n")
	used := map[string]bool{}
	var changing []string // names of the inputs whose values change
	var slowest time.Duration
	var settings []topicSettings
	for _, s := range all {
		name := inputName(s, used)
		fmt.Fprintf(&agent, "    %s: %s  # %s\n", name, yamlText(columnText(s.Topic, s.Column)), s.describe())
		fmt.Fprintf(&coordinator, "    - {name: %s", name)
		if s.Unit != "" {
			fmt.Fprintf(&coordinator, ", unit: %s", strconv.Quote(s.Unit))
		}
		low, high := s.proposedRange()
		fmt.Fprintf(&coordinator, ", range: [%s, %s]}  # %s\n", number(low), number(high), s.describe())
		if !s.IsFrozen() && s.Live > 0 {
			changing = append(changing, name)
			slowest = max(slowest, s.Interval())
		}
		of := s.settings
		if of.filter == "" && s.Format != "" {
			of = topicSettings{filter: s.Topic, format: s.Format}
		}
		if of.filter != "" && !slices.Contains(settings, of) {
			settings = append(settings, of)
		}
	}
	if len(settings) > 0 {
		agent.WriteString("  topics:\n")
	}
	for _, of := range settings {
		agent.WriteString("    - " + of.yaml() + "\n")
	}
	if len(changing) > 0 {
		step := gridStep(slowest)
		fmt.Fprintf(&coordinator, "  grid: {step: %s}\n  features: [%s]\n  target: %s in %s\n", step,
			strings.Join(changing, ", "), changing[0], step)
	}
	fmt.Fprintf(&agent, "readings:\n  broker:\n    url: %s\n", brokerURL)
	return Proposal{agent.String(), coordinator.String()}
}

// gridSteps are the proposed steps of the time grid.
var gridSteps = []string{"1m", "5m", "10m", "15m", "30m", "1h", "3h", "6h"}

// gridStep returns the smallest step that contains at least two values of the slowest input.
func gridStep(slowest time.Duration) string {
	for _, step := range gridSteps {
		if d, _ := time.ParseDuration(step); d >= 2*slowest {
			return step
		}
	}
	return gridSteps[len(gridSteps)-1]
}

// yaml returns the settings as an element of data.topics.
func (of topicSettings) yaml() string {
	var b strings.Builder
	fmt.Fprintf(&b, "{topic: %s", yamlText(of.filter))
	for _, field := range []struct{ key, value string }{
		{"format", of.format}, {"time", of.time}, {"time_format", of.timeFormat},
	} {
		if field.value != "" {
			fmt.Fprintf(&b, ", %s: %s", field.key, yamlText(field.value))
		}
	}
	if of.optional {
		b.WriteString(", time_optional: true")
	}
	if of.rebirth {
		b.WriteString(", rebirth: true")
	}
	b.WriteString("}")
	if of.timeFormat != "" && !strings.HasPrefix(of.timeFormat, "unix") && !strings.Contains(of.timeFormat, "Z07") {
		b.WriteString("  # the times have no zone: add time_zone, unless they are UTC")
	}
	return b.String()
}

// describe returns the observed range and the source of the series, for a comment.
func (s *Series) describe() string {
	text := fmt.Sprintf("%s, observed %s to %s", s.System, number(s.Min), number(s.Max))
	if s.IsFrozen() {
		text = fmt.Sprintf("%s, always %s", s.System, number(s.Last))
	}
	return text
}

// proposedRange returns a range that is wider than the observed range by five times its width on both sides.
// Percentages and booleans have their natural range.
func (s *Series) proposedRange() (low, high float64) {
	switch {
	case s.IsBoolean:
		return 0, 1
	case s.Unit == "%" && s.Min >= 0 && s.Max <= 100:
		return 0, 100
	}
	margin := 5 * max(s.Max-s.Min, math.Abs(s.Max)/5, 1)
	low, high = s.Min-margin, s.Max+margin
	if s.Min >= 0 && low < 0 && s.Unit != "°C" && s.Unit != "Cel" {
		low = 0 // a quantity such as a power or a humidity that is never negative
	}
	return roundOutward(low, math.Floor), roundOutward(high, math.Ceil)
}

// roundOutward rounds a limit to two significant digits.
func roundOutward(x float64, round func(float64) float64) float64 {
	if x == 0 {
		return 0
	}
	unit := math.Pow(10, math.Floor(math.Log10(math.Abs(x)))-1)
	return round(x/unit) * unit
}

func number(x float64) string { return strconv.FormatFloat(x, 'g', 6, 64) }

// inputName returns a name of the input that is valid and not used yet.
func inputName(s *Series, used map[string]bool) string {
	name := plainName(s.Device) + "_" + plainName(s.Quantity)
	if s.Device == s.Quantity {
		name = plainName(s.Quantity)
	}
	unique := name
	for i := 2; used[unique]; i++ {
		unique = name + "_" + strconv.Itoa(i)
	}
	used[unique] = true
	return unique
}

// maxNameBytes is the largest length of each part of a proposed name.
const maxNameBytes = 40

// plainName replaces characters that are not allowed in the names of inputs by underscores.
func plainName(text string) string {
	var b strings.Builder
	for _, c := range strings.ToLower(text) {
		switch {
		case b.Len() >= maxNameBytes:
		case c >= 'a' && c <= 'z' || c >= '0' && c <= '9':
			b.WriteRune(c)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "_"):
			b.WriteByte('_')
		}
	}
	if name := strings.Trim(b.String(), "_"); name != "" {
		return name
	}
	return "value"
}

// columnText returns the text of a column in data.columns. A topic with spaces is quoted.
func columnText(topic, column string) string {
	if strings.ContainsAny(topic, " \"\\") {
		topic = strconv.Quote(topic)
	}
	return strings.TrimSpace(topic + " " + column)
}

// yamlText returns a text as a YAML scalar. It is in single quotes if it contains special characters.
func yamlText(text string) string {
	if text != "" && !strings.ContainsAny(text, "\"'\\#:{}[],&*!|>%@`\t\n") && !strings.HasPrefix(text, "-") &&
		strings.TrimSpace(text) == text {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", "''") + "'"
}
