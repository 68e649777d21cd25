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

// TopicFilters of a broker of the site, whose messages are readings. The session only subscribes; it publishes nothing.
// A retained message that has no time of its own is of an unknown time: it is not used.

// topicSubscription is a filter, and what its messages hold.
type topicSubscription struct {
	topicFilter string
	payloadParser
}

// parseTopicSubscriptions reads the columns: by input a filter, and after a space the path of the value in a JSON
// payload. Those of the same filter without a path have each a subscription.
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
			all[i].timeField = of // a plain payload has no time of its own
		}
	}
	for i, a := range all {
		for _, b := range all[i+1:] {
			if a.topicFilter != b.topicFilter && (mqtt.FilterMatchesTopic(a.topicFilter,
				b.topicFilter) || mqtt.FilterMatchesTopic(b.topicFilter,
				a.topicFilter)) {
				return nil, fmt.Errorf("the topics %s and %s overlap: a broker may send their messages twice; "+
					"name one of them", a.topicFilter, b.topicFilter)
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
		return "", "", fmt.Errorf("%s: the quoted topic is invalid; it must end with a quote, and \" and \\ in it "+
			"need a \\ before them", data.QuoteForMessage(text))
	}
	return topic, text[len(quoted):], nil
}

// topicHash returns the hash of a topic, which is the Source of its readings.
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
			problems.Require(false, section+".columns."+input, "is read as topic %s and JSON path %s, but "+
				"the path contains a slash; if the topic contains spaces, put it in quotes: '%q'",
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
		"is empty; want each input with its topic, and for JSON with the path of its value, such as "+
			"pm25: site/air pm25")
	rejectFileOnlyKeys(c, problems, section)
	_, err := parseTopicSubscriptions(c)
	problems.AddError(section+".columns", err)
}

// rejectFileOnlyKeys reports keys that only files have.
func rejectFileOnlyKeys(c *data.Config, problems *spec.ProblemList, section string) {
	problems.Require(len(c.RequiredTextByColumn) == 0 && c.ShareIndex == 0 && c.ShareCount == 0, section+".where",
		"where, share and shares go with source csv only: remove them")
	problems.Require(c.Delimiter == "" && c.DecimalSeparator == "", section+".delimiter",
		"delimiter and decimal go with source csv only: remove them")
	_, err := payloadTimeFieldFromConfig(c)
	problems.AddError(section+".time", err)
}

// TopicFilters are the filters that the source of a section that was checked subscribes to.
func TopicFilters(c *data.Config) []string {
	all, _ := parseTopicSubscriptions(c) // which was checked
	return topicSubscriptions(all).topicFilters()
}

func openMQTT(c *data.Config) (data.Source, error) {
	s, err := parseTopicSubscriptions(c)
	return &collectorSource{intake: topicSubscriptions(s), rules: rows.ValueRulesFromConfig(c, nil),
		rowStorage: rows.StorageSettingsFromConfig(c)}, err
}

// topicSubscriptions are what a source hears.
type topicSubscriptions []topicSubscription

// probe knows nothing: the program's doctor examines the broker.
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
				problem = fmt.Sprintf("the message has %d bytes: at most %d are read", t.OversizedPacketSize,
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
	r.stats.setInitialTrouble(data.TroubleBroker, "the site's broker was not reached yet")
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

// topicFilters are what is subscribed to.
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

// handleConnectionEvent takes an event of the connection.
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
		r.stats.clearTroubles(data.TroubleBroker) // it refuses nothing any more
		r.stats.setTrouble(data.TroubleBroker, "", fmt.Errorf("the site's broker is away: %w", e.Err))
	case mqtt.SubscriptionRefused:
		r.stats.setTrouble(data.TroubleBroker, e.Filter, fmt.Errorf("the site's broker refuses the topic %s", e.Filter))
	case mqtt.SubscriptionRefusalEnded:
		r.stats.setTrouble(data.TroubleBroker, e.Filter, nil)
	}
}
