package sources

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/payload"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/spec"
)

// topicSubscription is a topic filter with the parser of its messages.
type topicSubscription struct {
	topicFilter    string
	format         string
	isAvailability bool // whether the messages report the availability of a device
	payloadParser
}

// parseTopicSubscriptions parses the configured columns. Each consists of a topic filter and, after a space, the text
// that selects the value in a payload. Columns with the same filter and the same format share a subscription, so that
// each payload is decoded once.
func parseTopicSubscriptions(c *data.Config) (all []topicSubscription, err error) {
	usedSettings := map[string]bool{}
	for _, input := range slices.Sorted(maps.Keys(c.ColumnByInput)) {
		if all, err = addTopicColumn(all, c, input, usedSettings); err != nil {
			return nil, fmt.Errorf("input %q: %w", input, err)
		}
	}
	for _, of := range c.TopicSettings {
		if !usedSettings[of.Topic] {
			return nil, fmt.Errorf("topics: %s matches no topic of data.columns: correct or remove it",
				data.QuoteForMessage(of.Topic))
		}
	}
	for i, a := range all {
		for _, b := range all[i+1:] {
			if a.topicFilter != b.topicFilter && (mqtt.FilterMatchesTopic(a.topicFilter,
				b.topicFilter) || mqtt.FilterMatchesTopic(b.topicFilter,
				a.topicFilter)) {
				return nil, fmt.Errorf(
					"the topics %s and %s overlap, so the broker may send messages twice: remove one of them",
					a.topicFilter, b.topicFilter)
			}
		}
	}
	return all, nil
}

// addTopicColumn adds the column of an input to the subscriptions.
func addTopicColumn(all []topicSubscription, c *data.Config, input string, usedSettings map[string]bool) (
	[]topicSubscription, error) {
	filter, text, err := splitTopicAndPath(c.ColumnByInput[input])
	if err != nil {
		return nil, err
	}
	if err := mqtt.CheckSubscriptionFilter(mqtt.AtMostOnce, filter); err != nil {
		return nil, err
	}
	text = strings.TrimSpace(text)
	settings, err := settingsForTopic(c, filter)
	if err != nil {
		return nil, err
	}
	usedSettings[settings.Topic] = true
	s, err := newTopicSubscription(c, settings, filter, text)
	if err != nil {
		return nil, err
	}
	column := payloadColumn{input: input, deviceFilter: payload.DeviceFilter(s.format, filter)}
	if column.Column, err = payload.ParseColumn(s.format, text); err != nil {
		return nil, err
	}
	wildcards := wildcardLevels(column.deviceFilter)
	if column.nameLevels, err = levelsOfName(input, wildcards); err != nil {
		return nil, err
	}
	all = addToSubscription(all, s, column)
	if settings.Availability == "" {
		return all, nil
	}
	a, err := availabilitySubscription(settings, filter)
	if err != nil {
		return nil, err
	}
	for i, level := range column.nameLevels {
		n := slices.Index(wildcardLevels(settings.Topic), level)
		at := slices.Index(strings.Split(settings.Availability, "/"), fmt.Sprintf("{%d}", n+1))
		if n < 0 || at < 0 {
			return nil, fmt.Errorf("the topic %s in availability must contain {%d}, so that it names the device",
				data.QuoteForMessage(settings.Availability), i+1)
		}
		column.nameLevels = slices.Clone(column.nameLevels)
		column.nameLevels[i] = at
	}
	return addToSubscription(all, a, column), nil
}

// addToSubscription adds a column to the subscription with the same filter and format as s. If there is none, it adds s
// with this column.
func addToSubscription(all []topicSubscription, s topicSubscription, column payloadColumn) []topicSubscription {
	i := slices.IndexFunc(all, func(a topicSubscription) bool {
		return a.topicFilter == s.topicFilter && a.format == s.format && a.isAvailability == s.isAvailability
	})
	if i < 0 {
		i, all = len(all), append(all, s)
	}
	all[i].columns = append(all[i].columns, column)
	return all
}

// settingsForTopic returns the entry of data.topics for a topic filter of a column: the entry with the same filter, or
// the only entry whose filter matches. It returns the zero value if no entry matches.
func settingsForTopic(c *data.Config, filter string) (found data.TopicSettings, err error) {
	for _, of := range c.TopicSettings {
		if err := mqtt.CheckSubscriptionFilter(mqtt.AtMostOnce, of.Topic); err != nil {
			return found, fmt.Errorf("topics: %w", err)
		}
		switch {
		case !mqtt.FilterMatchesTopic(of.Topic, filter) || found.Topic == filter && of.Topic != filter:
		case found.Topic == "" || of.Topic == filter && found.Topic != filter:
			found = of
		default:
			return found, fmt.Errorf("the entries %s and %s of topics both match the topic %s: remove one of them",
				data.QuoteForMessage(found.Topic), data.QuoteForMessage(of.Topic), data.QuoteForMessage(filter))
		}
	}
	return found, nil
}

// newTopicSubscription returns a subscription without columns. text is the text after the topic.
func newTopicSubscription(c *data.Config, of data.TopicSettings, filter, text string) (s topicSubscription, err error) {
	s.format = of.Format
	if s.format == "" {
		s.format = payload.DetectFormat(filter, text)
	}
	if !slices.Contains(payload.Formats(), s.format) {
		return s, fmt.Errorf("unknown format %q in topics; want one of %s", s.format,
			strings.Join(payload.Formats(), ", "))
	}
	if of.RequestsBirths && s.format != payload.FormatSparkplug {
		return s, fmt.Errorf("rebirth in topics requires the format sparkplug, but the format is %s: remove rebirth",
			s.format)
	}
	hasOwnTime := of.TimePath != "" || of.TimeFormat != "" || of.TimeZone != ""
	switch {
	case !payload.HasTimePath(s.format) && (hasOwnTime || of.TimeIsOptional):
		return s, fmt.Errorf("the format %s defines the position of its times: remove time, time_format, time_zone "+
			"and time_optional from its entry in topics", s.format)
	case payload.HasTimePath(s.format) && hasOwnTime:
		s.timeField, err = newPayloadTimeField(of.TimePath, of.TimeFormat, of.TimeZone)
	case payload.HasTimePath(s.format):
		s.timeField, err = payloadTimeFieldFromConfig(c)
	}
	if err != nil {
		return s, err
	}
	s.timeField.isOptional = of.TimeIsOptional
	if of.TimeIsOptional && len(s.timeField.path) == 0 {
		return s, fmt.Errorf("time_optional in topics requires the path of a time: set time, or remove time_optional")
	}
	s.decoder = payload.NewDecoder(s.format, payload.Options{Clock: s.timeField.field(),
		RequestsBirths: of.RequestsBirths})
	s.topicFilter, err = payload.SubscriptionFilter(s.format, filter)
	return s, err
}

// availabilitySubscription returns the subscription to messages about the availability of the devices under a topic
// filter. In the configured topic, {1} means the level of the filter at the first wildcard of the entry in data.topics.
func availabilitySubscription(of data.TopicSettings, filter string) (s topicSubscription, err error) {
	text, levels := of.Availability, strings.Split(filter, "/")
	for i, level := range wildcardLevels(of.Topic) {
		if level < len(levels) {
			text = strings.ReplaceAll(text, fmt.Sprintf("{%d}", i+1), levels[level])
		}
	}
	if err = mqtt.CheckSubscriptionFilter(mqtt.AtMostOnce, text); err == nil && strings.ContainsAny(text, "{}") {
		err = fmt.Errorf("topic %s in availability: the entry %s of topics has too few wildcards",
			data.QuoteForMessage(text), data.QuoteForMessage(of.Topic))
	}
	s = topicSubscription{topicFilter: text, isAvailability: true}
	s.decoder = payload.NewAvailabilityDecoder()
	return s, err
}

// wildcardLevels returns the numbers of the levels of a filter that are the wildcard +.
func wildcardLevels(filter string) (all []int) {
	for i, level := range strings.Split(filter, "/") {
		if level == "+" {
			all = append(all, i)
		}
	}
	return all
}

// levelsOfName returns the topic levels that replace {1}, {2}, … in the name of an input, or nil if the name contains
// none of these placeholders.
func levelsOfName(input string, wildcards []int) ([]int, error) {
	if !strings.ContainsAny(input, "{}") {
		return nil, nil
	}
	rest := input
	for i := range wildcards {
		rest = strings.ReplaceAll(rest, fmt.Sprintf("{%d}", i+1), "")
	}
	if strings.ContainsAny(rest, "{}") {
		return nil, fmt.Errorf("the name of the input may contain {1} to {%d}, because its topic has %d wildcards +",
			len(wildcards), len(wildcards))
	}
	return wildcards, nil
}

// splitTopicAndPath splits text into a topic and the path that follows it after a space. A topic that contains spaces
// must be in double quotes.
func splitTopicAndPath(text string) (topic, path string, err error) {
	if !strings.HasPrefix(text, `"`) {
		topic, path, _ = strings.Cut(text, " ")
		return topic, path, nil
	}
	quoted, err := strconv.QuotedPrefix(text)
	if err == nil {
		topic, err = strconv.Unquote(quoted)
	}
	if err != nil {
		return "", "", fmt.Errorf(
			"%s: the quoted topic is invalid: it must end with a quote, and \" and \\ must be escaped with \\",
			data.QuoteForMessage(text))
	}
	return topic, text[len(quoted):], nil
}

// topicHash returns the hash of a topic. It is used as the Source of its readings.
func topicHash(topic string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, topic) // writing to a hash never returns an error
	return h.Sum64()
}

// checkTopicPaths reports paths that contain a slash or a space. Such a path is probably part of a topic that contains
// spaces and has no quotes.
func checkTopicPaths(c *data.Config, problems *spec.ProblemList, section string) {
	for _, input := range slices.Sorted(maps.Keys(c.ColumnByInput)) {
		text := c.ColumnByInput[input]
		topic, path, err := splitTopicAndPath(text)
		of, otherErr := settingsForTopic(c, topic)
		if path = strings.TrimSpace(path); err != nil || otherErr != nil || strings.HasPrefix(text, `"`) ||
			cmp.Or(of.Format, payload.DetectFormat(topic, path)) != payload.FormatJSON {
			continue
		}
		if strings.Contains(path, "/") {
			problems.Require(false, section+".columns."+input, "is parsed as topic %s and JSON path %s, "+
				"but the path contains a slash; if the topic contains spaces, put it in quotes: '%q'",
				data.QuoteForMessage(topic), data.QuoteForMessage(path), topic+" "+path)
			continue
		}
		i := strings.LastIndexByte(path, ' ')
		problems.Require(i < 0, section+".columns."+input, "is parsed as topic %s and JSON path %s; if the topic "+
			"contains spaces, put it in quotes: '%q %s'; if the path contains spaces, put only the topic in quotes: "+
			"'%q %s'", data.QuoteForMessage(topic), data.QuoteForMessage(path), topic+" "+path[:max(i, 0)], path[i+1:],
			topic, path)
	}
}

func payloadTimeFieldFromConfig(c *data.Config) (payloadTimeField, error) {
	return newPayloadTimeField(c.TimeColumn, c.TimeFormat, c.TimeZone)
}

func newPayloadTimeField(path, format, zone string) (payloadTimeField, error) {
	f, err := newTimeFormat(format, zone)
	if err != nil {
		return payloadTimeField{}, err
	}
	p, err := payload.ParsePath(path)
	return payloadTimeField{path: p, timeFormat: f}, err
}

func checkMQTTConfig(c *data.Config, problems *spec.ProblemList, section string) {
	problems.Require(len(c.ColumnByInput) > 0, section+".columns",
		"the section is empty; list each input with its topic and, for JSON, the path of its value, such as "+
			"pm25: site/air pm25")
	rejectFileOnlyKeys(c, problems, section)
	_, err := parseTopicSubscriptions(c)
	problems.AddError(section+".columns", err)
}

// rejectTopicKeys reports configuration keys that are only valid for MQTT topics.
func rejectTopicKeys(c *data.Config, problems *spec.ProblemList, section string) {
	problems.Require(len(c.TopicSettings) == 0, section+".topics",
		"the key topics is only valid with source mqtt: remove this key")
}

// rejectFileOnlyKeys reports configuration keys that are only valid for files.
func rejectFileOnlyKeys(c *data.Config, problems *spec.ProblemList, section string) {
	problems.Require(len(c.RequiredTextByColumn) == 0 && c.ShareIndex == 0 && c.ShareCount == 0, section+".where",
		"the keys where, share and shares are only valid with source csv: remove them")
	problems.Require(c.Delimiter == "" && c.DecimalSeparator == "", section+".delimiter",
		"the keys delimiter and decimal are only valid with source csv: remove them")
	_, err := payloadTimeFieldFromConfig(c)
	problems.AddError(section+".time", err)
}
