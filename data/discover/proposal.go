package discover

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/data/payload"
)

// Proposal contains proposed sections of the agent's and the coordinator's configuration files, for the series that a
// survey found. The user deletes the lines of values that the model does not need.
type Proposal struct {
	Agent       string // sections data and readings of agentd.yaml, and predict in a comment
	Coordinator string // section task of coordinator.yaml, with its inputs
}

// Propose returns the proposal for the series, which are read from the broker at brokerURL.
func Propose(all []*Series, brokerURL string) Proposal {
	var agent, coordinator strings.Builder
	agent.WriteString("# Delete the lines of the inputs that the model does not need.\n" +
		"data:\n  source: mqtt\n  columns:\n")
	coordinator.WriteString("# Delete the lines of the inputs that the model does not need, choose the target and " +
		"the features, and\n# set the valid range of each input that has none.\ntask:\n  inputs:\n")
	used := map[string]bool{}
	var changing []string // names of the inputs whose values change
	var slowest time.Duration
	var settings []topicSettings
	var units strings.Builder
	for _, s := range all {
		name := inputName(s, used)
		if s.Unit != "" && !s.payloadContainsUnit {
			fmt.Fprintf(&units, "    %s: %s\n", name, strconv.Quote(s.Unit))
		}
		fmt.Fprintf(&agent, "    %s: %s  # %s\n", name, yamlText(columnText(s.Topic, s.Column)), s.describe())
		fmt.Fprintf(&coordinator, "    - {name: %s", name)
		if s.Unit != "" {
			fmt.Fprintf(&coordinator, ", unit: %s", strconv.Quote(s.Unit))
		}
		if low, high, isKnown := s.validRange(); isKnown {
			fmt.Fprintf(&coordinator, ", range: [%s, %s]", number(low), number(high))
		}
		fmt.Fprintf(&coordinator, "}  # %s\n", s.describe())
		if !s.IsFrozen() && s.Live > 0 {
			changing = append(changing, name)
			slowest = max(slowest, s.Interval())
		}
		of := s.settings
		if of == (topicSettings{}) {
			continue
		}
		if of.filter == "" {
			of.filter = s.Topic
		}
		if !slices.Contains(settings, of) {
			settings = append(settings, of)
		}
	}
	if len(settings) > 0 {
		agent.WriteString("  topics:\n")
	}
	for _, of := range settings {
		agent.WriteString("    - " + of.yaml() + "\n")
	}
	step := gridStep(slowest)
	if len(changing) > 0 {
		grid := "step: " + step
		if slices.ContainsFunc(settings, topicSettings.hasOwnTime) {
			grid += ", lateness: 10s" // the lateness allows for different clocks of the devices
		}
		fmt.Fprintf(&coordinator, "  grid: {%s}\n  features: [%s]\n  target: %s in %s\n", grid,
			strings.Join(changing, ", "), changing[0], step)
	}
	if units.Len() > 0 {
		agent.WriteString("  units:  # agentd converts these to the units of the task\n" + units.String())
	}
	fmt.Fprintf(&agent, "readings:\n  broker:\n    url: %s\n", brokerURL)
	every := "1m"
	if d, _ := time.ParseDuration(step); d < time.Minute {
		every = step
	}
	fmt.Fprintf(&agent, "# To publish forecasts at the site's broker, remove the # of the next line.\n"+
		"#predict: {keep: 1, every: %s, publish: fedmesh/forecast, broker: {url: %q}}\n", every, brokerURL)
	return Proposal{agent.String(), coordinator.String()}
}

// gridSteps are the proposed steps of the time grid.
var gridSteps = []string{"10s", "30s", "1m", "5m", "10m", "15m", "30m", "1h", "3h", "6h"}

// gridStep returns the smallest step that contains at least two values of the slowest input.
func gridStep(slowest time.Duration) string {
	for _, step := range gridSteps {
		if d, _ := time.ParseDuration(step); d >= 2*slowest {
			return step
		}
	}
	return gridSteps[len(gridSteps)-1]
}

// hasOwnTime reports whether the payloads contain the times of their values.
func (of topicSettings) hasOwnTime() bool {
	return of.time != "" || of.rebirth || of.format != "" && of.format != payload.FormatPlain &&
		!payload.HasTimePath(of.format)
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

// describe returns the observed range of the series and the name of its system, as text for a comment.
func (s *Series) describe() string {
	text := fmt.Sprintf("%s, observed %s to %s", s.System, number(s.Min), number(s.Max))
	if s.IsFrozen() {
		text = fmt.Sprintf("%s, always %s", s.System, number(s.Last))
	}
	return text
}

// knownRanges are the valid ranges of quantities, by their name or unit.
var knownRanges = []struct {
	names     *regexp.Regexp
	low, high float64
}{
	{regexp.MustCompile(`(?i)temperature|°C|°F|\bCel\b`), -60, 150},
	{regexp.MustCompile(`(?i)humidity|battery|%`), 0, 100},
}

// validRange returns the valid range of the series. isKnown is false if neither the name nor the unit determines the
// range, because a few minutes of messages do not show which values are possible.
func (s *Series) validRange() (low, high float64, isKnown bool) {
	if s.IsBoolean {
		return 0, 1, true
	}
	for _, r := range knownRanges {
		if r.names.MatchString(s.Quantity+" "+s.Unit) && s.Min >= r.low && s.Max <= r.high {
			return r.low, r.high, true
		}
	}
	return 0, 0, false
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

// maxNamePart is the largest length of each part of a proposed name, in bytes.
const maxNamePart = 40

// plainName replaces each character that is not allowed in the name of an input by an underscore.
func plainName(text string) string {
	var b strings.Builder
	for _, c := range strings.ToLower(text) {
		switch {
		case b.Len() >= maxNamePart:
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
