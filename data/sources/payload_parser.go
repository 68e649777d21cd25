package sources

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/data/payload"
	"github.com/fedmesh/fedmesh/data/rows"
	"github.com/fedmesh/fedmesh/mqtt"
)

// payloadColumn defines where a payload contains the value of an input.
type payloadColumn struct {
	input string
	payload.Column
	deviceFilter string // for MQTT, the filter that the Topic of a reading must match
	// nameLevels contains the topic levels that replace {1}, {2}, … in the name of the input.
	nameLevels []int
}

// inputFor returns the name of the input for a topic.
func (c *payloadColumn) inputFor(topic string) string {
	if len(c.nameLevels) == 0 {
		return c.input
	}
	levels, name := strings.Split(topic, "/"), c.input
	for i, level := range c.nameLevels {
		if level < len(levels) {
			name = strings.ReplaceAll(name, fmt.Sprintf("{%d}", i+1), inputNameFromLevel(levels[level]))
		}
	}
	return name[:min(len(name), maxTextBytes)]
}

// inputNameFromLevel returns a level of a topic with each character that is not allowed in the name of an input
// replaced by an underscore.
func inputNameFromLevel(level string) string {
	return strings.Map(func(r rune) rune {
		if r|0x20 >= 'a' && r|0x20 <= 'z' || r >= '0' && r <= '9' || strings.ContainsRune("_-.", r) {
			return r
		}
		return '_'
	}, level)
}

// payloadTimeField defines where a payload contains its time, and the format of the time.
type payloadTimeField struct {
	path       payload.Path // path of the time; empty means the time of arrival
	isOptional bool
	timeFormat
}

// field returns the definition for package payload.
func (f payloadTimeField) field() payload.TimeField {
	return payload.TimeField{Path: f.path, IsOptional: f.isOptional, Parse: func(text string) (int64, error) {
		at, err := f.parseTime(text)
		if err != nil {
			shown := data.QuoteForMessage(text)
			if text == "null" {
				shown = text
			}
			err = fmt.Errorf("%s is not a time %s%s", shown, f.exampleTime(), f.formatAdvice(text))
		}
		return at, err
	}}
}

// payloadParser converts payloads to readings.
type payloadParser struct {
	decoder    payload.Decoder
	columns    []payloadColumn // empty means that each member of a JSON object is an input with its name
	timeField  payloadTimeField
	addReading func(data.Reading)
	stats      *sourceStats
}

// payloadMeta describes the origin and the arrival of a payload.
type payloadMeta struct {
	place      string    // topic or line number, for error messages
	sourceHash uint64    // value of Reading.Source for all readings of the payload
	receivedAt time.Time // time of arrival
	isRetained bool      // whether the broker had stored the message
}

// parsePayload decodes a payload and records its readings. It returns the content.
func (p *payloadParser) parsePayload(text []byte, from payloadMeta) payload.Content {
	c, err := p.decoder.Decode(payload.Message{Topic: from.place, Payload: text, ReceivedAt: from.receivedAt,
		IsRetained: from.isRetained})
	if err != nil {
		p.rejectContent(err, from)
		return c
	}
	p.addContent(&c, from)
	return c
}

// rejectContent counts a payload that is empty, that cannot be decoded, or whose time is wrong.
func (p *payloadParser) rejectContent(err error, from payloadMeta) {
	why := grid.ReasonMalformed
	switch wrongTime := (*payload.TimeError)(nil); {
	case errors.As(err, &wrongTime):
		why = grid.ReasonBadTime
	case errors.Is(err, payload.ErrEmpty):
		why = grid.ReasonMissing
	}
	p.rejectPayload(why, err.Error(), from.place)
}

// addTree records the readings of a decoded tree.
func (p *payloadParser) addTree(tree any, from payloadMeta) {
	c, err := payload.TreeContent(tree, p.timeField.field())
	if err != nil {
		p.rejectContent(err, from)
		return
	}
	p.addContent(&c, from)
}

// addContent records the readings of a content.
func (p *payloadParser) addContent(c *payload.Content, from payloadMeta) {
	if len(p.columns) == 0 {
		for _, r := range c.Members() {
			if len(r.Name) <= maxTextBytes && p.stats.mayCountInput(r.Name) {
				p.addValue(r.Name, r, from)
			}
		}
		return
	}
	for i := range p.columns {
		p.addColumn(&p.columns[i], c, from)
	}
}

// addColumn records the readings of a column. If the content has no such reading, the value is missing. A list may
// contain only the values that have changed. A value is therefore not missing if the list contains only other names.
func (p *payloadParser) addColumn(of *payloadColumn, c *payload.Content, from payloadMeta) {
	found := false
	for _, r := range c.Select(&of.Column) {
		topic := cmp.Or(r.Topic, from.place)
		if r.Topic != "" && !mqtt.FilterMatchesTopic(of.deviceFilter, r.Topic) {
			continue
		}
		found = true
		source := from
		if r.Topic != "" {
			source.sourceHash = topicHash(r.Topic)
		}
		input := of.inputFor(topic)
		if input != of.input && !p.stats.mayCountInput(input) {
			continue
		}
		p.stats.setDeviceOffline(input, topic, r.Availability == payload.Offline)
		switch r.Availability {
		case payload.Offline:
			r.Value, source.isRetained = offlineText, false
		case payload.Online:
			continue
		}
		p.addValue(input, r, source)
	}
	if found {
		return
	}
	input := of.inputFor(from.place)
	if input != of.input && !p.stats.mayCountInput(input) {
		return
	}
	const most = 5
	names := c.FirstNames(most)
	switch {
	case c.IsTree():
		p.stats.countUnusedValue(input, grid.ReasonMissing, "the value is absent, null or empty", from.place)
	case c.NodeProblem != nil && (c.BirthTopic == "" || !mqtt.FilterMatchesTopic(of.deviceFilter, c.BirthTopic)):
		// A message of Sparkplug concerns one device. Unless it is a birth message, it contains only changed metrics.
	case len(names) > 0:
		for i, name := range names {
			names[i] = data.QuoteForMessage(name)
		}
		p.stats.countUnusedValue(input, grid.ReasonMissing,
			"no value with this name and these conditions; the payload "+
				"has the names "+strings.Join(names, ", "), from.place)
	}
}

// offlineText is the recorded value of a device that is offline. It is one of the standard texts of missing values.
const offlineText = "unavailable"

// rejectPayload counts a payload that cannot be used.
func (p *payloadParser) rejectPayload(why data.UnusedReason, problem, where string) {
	for i := range p.columns {
		p.stats.countUnusedValue(p.columns[i].inputFor(where), why, problem, where)
	}
	if len(p.columns) == 0 {
		p.stats.countUnusedValue("", why, problem, where)
	}
}

// addValue records the value of a reading, or counts the reason for rejecting it. A text such as NA is recorded
// although it means a missing value, because the task may have a class with this name.
func (p *payloadParser) addValue(input string, of payload.Reading, from payloadMeta) {
	at := from.receivedAt.Add(-of.Age).UnixNano()
	switch {
	case of.TimeErr != nil:
		p.stats.countUnusedValue(input, grid.ReasonBadTime, of.TimeErr.Error(), from.place)
		return
	case of.HasTime:
		at = of.Time
	case from.isRetained:
		p.stats.countUnusedValue(input, grid.ReasonLate, "a retained message without a time: the age of the value is "+
			"unknown", from.place)
		return
	}
	value := of.Value
	r, why := data.Reading{Input: input, Time: at, Source: from.sourceHash,
		Unit: strings.ToValidUTF8(of.Unit[:min(len(of.Unit), maxUnitBytes)], "")}, data.UnusedReason("")
	switch v := value.(type) {
	case json.Number:
		number, err := strconv.ParseFloat(string(v), 64)
		if r.Value = number; err != nil || !data.IsFinite(number) {
			why = grid.ReasonNotFinite
		}
	case bool:
		r.Text = strconv.FormatBool(v)
	case string:
		if r.Text = strings.TrimSpace(v); len(r.Text) > maxTextBytes {
			why = grid.ReasonNotANumber
		} else if r.Text == "" {
			why = grid.ReasonMissing
		}
	case nil:
		why = grid.ReasonMissing
	default:
		why = grid.ReasonNotANumber
	}
	if r.Text != "" {
		if r.Value = numberFromText(r.Text); math.IsInf(r.Value, 0) {
			why = grid.ReasonNotFinite
		}
	}
	says := ""
	// A clock that shows a time before the year 2000 was never set.
	clockSet := from.receivedAt.UnixNano() >= rows.MinReadingTime
	switch {
	case why == grid.ReasonMissing:
		says = "the value is absent, null or empty"
	case why != "":
		says = data.DescribeCellProblem(payload.ValueText(value), why)
	case at < rows.MinReadingTime:
		why, says = grid.ReasonBadTime, fmt.Sprintf("%s is before the year 2000%s", rows.FormatTime(at),
			p.timeField.unitAdvice(at))
	case clockSet && at > from.receivedAt.Add(rows.MaxFutureSkew).UnixNano():
		why, says = grid.ReasonFutureTime, rows.FormatTime(at)+" is in the future according to the device's clock"
	}
	if why != "" {
		p.stats.countUnusedValue(input, why, says, from.place)
		return
	}
	p.stats.countUsedReading(r)
	p.addReading(r)
}
