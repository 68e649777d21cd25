package sources

import (
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/data/rows"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/spec"
)

// An MQTT source subscribes to topics of a broker of the site. Its messages are readings. It publishes nothing. A
// retained message without its own time is ignored, because its age is unknown.

// topicSubscription is a topic filter with the parser of its messages.
type topicSubscription struct {
	topicFilter string
	payloadParser
}

// parseTopicSubscriptions parses the configured columns. Each consists of a topic filter and, after a space, the path
// of the value in a JSON payload. Inputs without a path get separate subscriptions, even if their filters are equal.
func parseTopicSubscriptions(c *data.Config) (all []topicSubscription, err error) {
	of, err := payloadTimeFieldFromConfig(c)
	if err != nil {
		return nil, err
	}
	for _, input := range slices.Sorted(maps.Keys(c.ColumnByInput)) {
		filter, text, err := splitTopicAndPath(c.ColumnByInput[input])
		var p jsonPath
		if err == nil {
			p, err = parseJSONPath(strings.TrimSpace(text))
		}
		if err == nil {
			err = mqtt.CheckSubscriptionFilter(mqtt.AtMostOnce, filter)
		}
		if err != nil {
			return nil, fmt.Errorf("input %q: %w", input, err)
		}
		i := len(all)
		for j, s := range all {
			if len(p) > 0 && s.topicFilter == filter && len(s.columns[0].path) > 0 {
				i = j
			}
		}
		if i == len(all) {
			all = append(all, topicSubscription{topicFilter: filter})
		}
		if all[i].columns = append(all[i].columns, payloadColumn{input, p}); len(p) > 0 {
			all[i].timeField = of // a plain payload contains no time
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
	_, _ = io.WriteString(h, topic) // a hash never returns an error
	return h.Sum64()
}

// checkTopicPaths reports paths that contain a slash. Such a path is probably the rest of a topic that contains spaces.
func checkTopicPaths(c *data.Config, problems *spec.ProblemList, section string) {
	for _, input := range slices.Sorted(maps.Keys(c.ColumnByInput)) {
		topic, path, err := splitTopicAndPath(c.ColumnByInput[input])
		if path = strings.TrimSpace(path); err == nil && strings.Contains(path, "/") {
			problems.Require(false, section+".columns."+input, "is parsed as topic %s and JSON path %s, "+
				"but the path contains a slash; if the topic contains spaces, put it in quotes: '%q'",
				data.QuoteForMessage(topic), data.QuoteForMessage(path), topic+" "+path)
		}
	}
}

func payloadTimeFieldFromConfig(c *data.Config) (payloadTimeField, error) {
	format, err := newTimeFormat(c.TimeFormat, c.TimeZone)
	if err != nil {
		return payloadTimeField{}, err
	}
	p, err := parseJSONPath(c.TimeColumn)
	return payloadTimeField{p, format}, err
}

func checkMQTTConfig(c *data.Config, problems *spec.ProblemList, section string) {
	problems.Require(len(c.ColumnByInput) > 0, section+".columns",
		"is empty; list each input with its topic and, for JSON, the path of its value, such as pm25: site/air pm25")
	rejectFileOnlyKeys(c, problems, section)
	_, err := parseTopicSubscriptions(c)
	problems.AddError(section+".columns", err)
}

// rejectFileOnlyKeys reports configuration keys that are only valid for files.
func rejectFileOnlyKeys(c *data.Config, problems *spec.ProblemList, section string) {
	problems.Require(len(c.RequiredTextByColumn) == 0 && c.ShareIndex == 0 && c.ShareCount == 0, section+".where",
		"where, share and shares are only valid with source csv: remove them")
	problems.Require(c.Delimiter == "" && c.DecimalSeparator == "", section+".delimiter",
		"delimiter and decimal are only valid with source csv: remove them")
	_, err := payloadTimeFieldFromConfig(c)
	problems.AddError(section+".time", err)
}

// TopicFilters returns the topic filters to which the source of a validated section subscribes.
func TopicFilters(c *data.Config) []string {
	all, _ := parseTopicSubscriptions(c) // the section was validated before
	return topicSubscriptions(all).topicFilters()
}

func openMQTT(c *data.Config) (data.Source, error) {
	s, err := parseTopicSubscriptions(c)
	return &collectorSource{intake: topicSubscriptions(s), rules: rows.ValueRulesFromConfig(c, nil),
		rowStorage: rows.StorageSettingsFromConfig(c)}, err
}

// topicSubscriptions is the readingIntake of an MQTT source.
type topicSubscriptions []topicSubscription

// probe always returns nil, because the doctor command checks the broker.
func (topicSubscriptions) probe() error { return nil }

func (all topicSubscriptions) beginIntake(r *readingRecorder) (end func() error, err error) {
	for i := range all {
		all[i].addReading, all[i].stats = r.recordReading, r.stats
		for _, c := range all[i].columns {
			r.stats.expectInput(c.input, " from topic "+all[i].topicFilter)
		}
	}
	conn, err := r.env.ConnectBroker(func(t mqtt.ObservedMessage) {
		if t.IsIncoming && t.IsDropped {
			problem := "messages arrived faster than they could be processed"
			if t.ExceededSizeLimit > 0 {
				problem = fmt.Sprintf("the message has %d bytes, which exceeds the limit of %d", t.OversizedPacketSize,
					t.ExceededSizeLimit)
				r.stats.recordOversizedMessage(t.Topic, t.OversizedPacketSize, t.ExceededSizeLimit)
			}
			all.forEachMatchingSubscription(t.Topic, func(s *topicSubscription) {
				s.rejectPayload(grid.ReasonNoRoom,
					problem, t.Topic)
			})
		}
	})
	if err != nil {
		return nil, err
	}
	r.stats.setInitialTrouble(data.TroubleBroker, "not yet connected to the site's broker")
	conn.Subscribe(mqtt.AtMostOnce, all.topicFilters()...)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range conn.Events() {
			all.handleConnectionEvent(r, e)
		}
	}()
	return func() error {
		err := conn.Close()
		<-done
		return err
	}, nil
}

// topicFilters returns the sorted filters without duplicates.
func (all topicSubscriptions) topicFilters() []string {
	filters := make([]string, len(all))
	for i, s := range all {
		filters[i] = s.topicFilter
	}
	slices.Sort(filters)
	return slices.Compact(filters)
}

func (all topicSubscriptions) forEachMatchingSubscription(topic string, do func(*topicSubscription)) {
	for i := range all {
		if mqtt.FilterMatchesTopic(all[i].topicFilter, topic) {
			do(&all[i])
		}
	}
}

// handleConnectionEvent processes an event of the connection.
func (all topicSubscriptions) handleConnectionEvent(r *readingRecorder, e mqtt.Event) {
	switch e := e.(type) {
	case mqtt.MessageReceived:
		from := payloadMeta{e.Topic, topicHash(e.Topic), r.env.Now()}
		all.forEachMatchingSubscription(e.Topic, func(s *topicSubscription) {
			if !e.Retained || len(s.timeField.path) > 0 {
				s.parsePayload(e.Payload, from)
			}
		})
	case mqtt.LinkUp:
		r.stats.setTrouble(data.TroubleBroker, "", nil)
	case mqtt.LinkDown:
		r.stats.clearTroubles(data.TroubleBroker) // refusals end with the connection
		r.stats.setTrouble(data.TroubleBroker, "", fmt.Errorf("not connected to the site's broker: %w", e.Err))
	case mqtt.SubscriptionRefused:
		r.stats.setTrouble(data.TroubleBroker, e.Filter, fmt.Errorf(
			"the site's broker refuses the subscription to %s", e.Filter))
	case mqtt.SubscriptionRefusalEnded:
		r.stats.setTrouble(data.TroubleBroker, e.Filter, nil)
	}
}
