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

// Topics of a broker of the site, whose messages are readings. The session only subscribes; it publishes nothing. A
// retained message that has no time of its own is of an unknown time: it is not used.

// subscription is a filter, and what its messages hold.
type subscription struct {
	filter string
	payloadParser
}

// parseTopicSubscriptions reads the columns: by input a filter, and after a space the path of the value in a JSON
// payload. Those of the same filter without a path have each a subscription.
func parseTopicSubscriptions(c *data.Config) (all []subscription, err error) {
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
			err = mqtt.CheckSubscription(mqtt.AtMostOnce, filter)
		}
		if err != nil {
			return nil, fmt.Errorf("input %q: %w", input, err)
		}
		i := len(all)
		for j, s := range all {
			if len(p) > 0 && s.filter == filter && len(s.columns[0].path) > 0 {
				i = j
			}
		}
		if i == len(all) {
			all = append(all, subscription{filter: filter})
		}
		if all[i].columns = append(all[i].columns, payloadColumn{input, p}); len(p) > 0 {
			all[i].timeField = of // a plain payload has no time of its own
		}
	}
	for i, a := range all {
		for _, b := range all[i+1:] {
			if a.filter != b.filter && (mqtt.FilterMatches(a.filter, b.filter) || mqtt.FilterMatches(b.filter,
				a.filter)) {
				return nil, fmt.Errorf("the topics %s and %s overlap: a broker may send their messages twice; "+
					"name one of them", a.filter, b.filter)
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

// Topics are the filters that the source of a section that was checked subscribes to.
func Topics(c *data.Config) []string {
	all, _ := parseTopicSubscriptions(c) // which was checked
	return topicSubscriptions(all).filters()
}

func openMQTT(c *data.Config) (data.Source, error) {
	s, err := parseTopicSubscriptions(c)
	return &collectorSource{intake: topicSubscriptions(s), rules: rows.ValueRulesFromConfig(c, nil),
		rowStorage: rows.StorageSettingsFromConfig(c)}, err
}

// topicSubscriptions are what a source hears.
type topicSubscriptions []subscription

// probe knows nothing: the program's doctor examines the broker.
func (topicSubscriptions) probe() error { return nil }

func (all topicSubscriptions) begin(r *readingRecorder) (end func() error, err error) {
	for i := range all {
		all[i].addReading, all[i].stats = r.put, r.stats
		for _, c := range all[i].columns {
			r.stats.expectInput(c.input, " from topic "+all[i].filter)
		}
	}
	conn, err := r.env.Connect(func(t mqtt.ObservedMessage) {
		if t.IsIncoming && t.Dropped {
			problem := "messages arrived faster than they could be processed"
			if t.SizeLimit > 0 {
				problem = fmt.Sprintf("the message has %d bytes: at most %d are read", t.PacketSize, t.SizeLimit)
				r.stats.recordOversizedMessage(t.Topic, t.PacketSize, t.SizeLimit)
			}
			all.forEachMatch(t.Topic, func(s *subscription) { s.rejectPayload(grid.ReasonNoRoom, problem, t.Topic) })
		}
	})
	if err != nil {
		return nil, err
	}
	r.stats.setInitialTrouble(data.TroubleBroker, "the site's broker was not reached yet")
	conn.Subscribe(mqtt.AtMostOnce, all.filters()...)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range conn.Events() {
			all.handleEvent(r, e)
		}
	}()
	return func() error {
		err := conn.Close()
		<-done
		return err
	}, nil
}

// filters are what is subscribed to.
func (all topicSubscriptions) filters() []string {
	filters := make([]string, len(all))
	for i, s := range all {
		filters[i] = s.filter
	}
	slices.Sort(filters)
	return slices.Compact(filters)
}

func (all topicSubscriptions) forEachMatch(topic string, do func(*subscription)) {
	for i := range all {
		if mqtt.FilterMatches(all[i].filter, topic) {
			do(&all[i])
		}
	}
}

// handleEvent takes an event of the connection.
func (all topicSubscriptions) handleEvent(r *readingRecorder, e mqtt.Event) {
	switch e := e.(type) {
	case mqtt.MessageReceived:
		from := payloadMeta{e.Topic, topicHash(e.Topic), r.env.Now()}
		all.forEachMatch(e.Topic, func(s *subscription) {
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
