// Package payload decodes messages of devices: plain values, JSON, CBOR, SenML, InfluxDB line protocol, OPC UA PubSub
// and Sparkplug B.
//
// Each format is one file and one line in the table formats. [NewDecoder] returns the decoder of a format,
// [ParseColumn] parses the text that selects a value, and [Content.Select] returns the readings that the text selects.
// All formats must pass the suite in conformance_test.go.
//
// A format is either a tree or a list. The content of a tree format is a tree of objects and lists, and a column of the
// configuration is a [Path] in this tree. The content of a list format is a list of named readings, and a column is a
// name followed by conditions on the labels of the reading, such as temperature[host=gateway].
//
// The package reads no clock. A decoder returns an error, and never panics, for any payload.
package payload

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/sparkplug"
)

// Message is a received message.
type Message struct {
	Topic      string
	Payload    []byte
	ReceivedAt time.Time
	IsRetained bool // whether the broker had stored the message, so that its age is unknown
}

// Reading is one value in a payload.
type Reading struct {
	Name   string
	Labels []Label // further properties, such as the tags of line protocol
	// Value is a json.Number, a string, a bool, or nil if the value is missing. Other types are not usable as values.
	Value any
	Unit  string // unit of the value, if the format has units
	// Time is the time of the value in nanoseconds since 1970. It is only valid if HasTime is true.
	Time    int64
	HasTime bool
	// Age is the age of the value on arrival. It is used if HasTime is false.
	Age time.Duration
	// TimeErr is the reason why the time cannot be used.
	TimeErr error
	// Topic is the topic of the device if it differs from the topic of the message. See [SubscriptionFilter].
	Topic string
	// Availability is set if the reading has no value, but reports the availability of a device. The reading then
	// concerns all values of the device.
	Availability Availability
}

// Availability states whether a device is available.
type Availability string

// States of a device.
const (
	Online  Availability = "online"
	Offline Availability = "offline"
)

// Label is a property of a reading.
type Label struct{ Key, Value string }

// Content is the content of one payload.
type Content struct {
	tree     any
	isTree   bool
	clock    *TimeField // position of the time in a tree
	treeTime Reading    // time that applies to all values of a tree, unless the path of the time has a wildcard
	readings []Reading  // readings, if the content is a list
	// BirthTopic is the Topic of a device if the content contains all values of the device.
	BirthTopic string
	// NodeProblem is set by formats with a state for each sender, such as Sparkplug B.
	NodeProblem *NodeProblem
}

// NodeProblem describes the state of the sender of a message.
type NodeProblem struct {
	Node    string // name of the node that sent the message
	Problem string // empty if the sender has no problem
	// CommandTopic and Command form the message that requests the missing information from the sender. They are empty
	// if no message should be published.
	CommandTopic string
	Command      []byte
}

// TimeField defines where the trees of a topic contain the time of their values.
type TimeField struct {
	// Path is the path of the time. If it is empty, the time is the time of arrival. A wildcard selects the same
	// member or element as the wildcard at the same level in the path of the value.
	Path Path
	// Parse parses the text of a time. Its error is a complete message.
	Parse      func(text string) (int64, error)
	IsOptional bool // whether a payload without a time has the time of its arrival
}

// Options contains the settings of a decoder.
type Options struct {
	Clock TimeField
	// RequestsBirths allows a Sparkplug decoder to request missing births from edge nodes.
	RequestsBirths bool
}

// TimeError means that the time of a payload is missing or cannot be parsed.
type TimeError struct{ Err error }

func (e *TimeError) Error() string { return e.Err.Error() }

// Unwrap returns the underlying error.
func (e *TimeError) Unwrap() error { return e.Err }

// Decoder decodes the payloads of one subscription. It is not safe for concurrent use.
type Decoder interface {
	// Decode returns the content of a message. The error is a *TimeError if only the time is wrong. The payload must
	// not be changed while the content is in use.
	Decode(m Message) (Content, error)
}

// Names of formats.
const (
	FormatPlain     = "plain"     // the whole payload is a number or a text
	FormatJSON      = "json"      // JSON, or CBOR if the first byte shows it
	FormatCBOR      = "cbor"      // CBOR (RFC 8949)
	FormatSenML     = "senml"     // SenML in JSON or CBOR (RFC 8428)
	FormatInflux    = "influx"    // InfluxDB line protocol
	FormatOPCUA     = "opcua"     // OPC UA PubSub in JSON
	FormatSparkplug = "sparkplug" // Sparkplug B
)

// format is an entry of the table of formats.
type format struct {
	name       string
	isTree     bool
	newDecoder func(Options) Decoder
}

// formats contains all formats.
var formats = []format{
	{FormatPlain, true, func(Options) Decoder { return plainDecoder{} }},
	{FormatJSON, true, func(o Options) Decoder { return jsonDecoder{o.Clock} }},
	{FormatCBOR, true, func(o Options) Decoder { return cborDecoder{o.Clock} }},
	{FormatSenML, false, func(Options) Decoder { return senMLDecoder{} }},
	{FormatInflux, false, func(Options) Decoder { return influxDecoder{} }},
	{FormatOPCUA, false, func(Options) Decoder { return opcUADecoder{} }},
	{FormatSparkplug, false, func(o Options) Decoder { return newSparkplugDecoder(o) }},
}

// Formats returns the names of all formats.
func Formats() (all []string) {
	for _, f := range formats {
		all = append(all, f.name)
	}
	return all
}

// formatByName returns the format with a name. It panics if the name is not in Formats.
func formatByName(name string) format {
	i := slices.IndexFunc(formats, func(f format) bool { return f.name == name })
	return formats[i]
}

// NewDecoder returns a decoder of a format.
func NewDecoder(name string, o Options) Decoder { return formatByName(name).newDecoder(o) }

// HasTimePath reports whether the configuration can define the path of the time in a format. All other formats define
// where their times are.
func HasTimePath(name string) bool { return name == FormatJSON || name == FormatCBOR }

// DetectFormat returns the format of a topic whose format is not configured. column is the text after the topic.
func DetectFormat(topicFilter, column string) string {
	switch {
	case strings.HasPrefix(topicFilter, sparkplug.Namespace+"/"):
		return FormatSparkplug
	case column == "":
		return FormatPlain
	}
	return FormatJSON
}

// SubscriptionFilter returns the MQTT topic filter to subscribe to for the topic filter of a column. They differ for
// Sparkplug, which publishes births, data and deaths of a device under different topics, all of which are required.
func SubscriptionFilter(name, topicFilter string) (string, error) {
	if name == FormatSparkplug {
		return sparkplugSubscription(topicFilter)
	}
	return topicFilter, nil
}

// DeviceFilter returns the filter that the Topic of a reading of a column must match.
func DeviceFilter(name, topicFilter string) string {
	if name == FormatSparkplug {
		return sparkplugDeviceTopic(topicFilter)
	}
	return topicFilter
}

// Column selects readings from the content of a payload.
type Column struct {
	Path       Path   // path of the value, for a tree
	name       string // for a list; empty means any name
	conditions []condition
}

// ParseColumn parses the text that selects the values of an input in a format.
func ParseColumn(formatName, text string) (Column, error) {
	switch f := formatByName(formatName); {
	case f.name == FormatPlain && text != "":
		return Column{}, fmt.Errorf("path %s: the format plain has no paths: remove the path, or set another format",
			data.QuoteForMessage(text))
	case f.isTree:
		p, err := ParsePath(text)
		return Column{Path: p}, err
	case text == "":
		return Column{}, fmt.Errorf("the name of the value is missing after the topic: the format %s requires one",
			f.name)
	}
	for i := range len(text) {
		if text[i] != '[' {
			continue
		}
		if all, n := parseConditions(text[i:]); n > 0 && i+n == len(text) {
			return Column{name: text[:i], conditions: all}, nil
		}
	}
	return Column{name: text}, nil
}

// Select returns the readings that a column selects, in the order of the payload.
func (c *Content) Select(of *Column) (all []Reading) {
	if !c.isTree {
		for _, r := range c.readings {
			if r.Availability != "" || (of.name == "" || of.name == r.Name) && r.satisfies(of.conditions) {
				all = append(all, r)
			}
		}
		return all
	}
	of.Path.selectIn(c.tree, nil, func(v any, place []string) bool {
		r := c.treeTime
		r.Value = v
		if c.clock != nil && c.clock.Path.hasWildcard() {
			r.Time, r.HasTime, r.TimeErr = c.clock.timeIn(c.tree, place)
		}
		all = append(all, r)
		return true
	})
	return all
}

// Members returns the readings of the members of an object that are neither objects nor lists nor the time.
func (c *Content) Members() (all []Reading) {
	object, _ := c.tree.(map[string]any)
	for name, value := range object {
		switch value.(type) {
		case map[string]any, []any, nil:
			continue
		}
		if c.clock != nil && len(c.clock.Path) == 1 && c.clock.Path[0].name == name {
			continue
		}
		r := c.treeTime
		r.Name, r.Value = name, value
		all = append(all, r)
	}
	return all
}

// IsTree reports whether the content is a tree.
func (c *Content) IsTree() bool { return c.isTree }

// FirstNames returns the names of the readings in a list, without duplicates. The argument most limits their number. It
// returns nil for a tree.
func (c *Content) FirstNames(most int) (all []string) {
	for _, r := range c.readings {
		if len(all) < most && r.Name != "" && !slices.Contains(all, r.Name) {
			all = append(all, r.Name)
		}
	}
	return all
}

// satisfies reports whether the labels and the unit of a reading satisfy all conditions.
func (r *Reading) satisfies(all []condition) bool {
	for _, c := range all {
		key := c.key.FirstName()
		if len(c.key) > 1 {
			key = c.key.String()
		}
		if key == "unit" && r.Unit == c.value {
			continue
		}
		if !slices.Contains(r.Labels, Label{key, c.value}) {
			return false
		}
	}
	return true
}

// TreeContent returns the content of a decoded tree of objects, lists and values.
func TreeContent(tree any, clock TimeField) (Content, error) {
	c := Content{tree: tree, isTree: true}
	if len(clock.Path) == 0 {
		return c, nil
	}
	c.clock = &clock
	if clock.Path.hasWildcard() {
		return c, nil
	}
	var err error
	if c.treeTime.Time, c.treeTime.HasTime, err = clock.timeIn(tree, nil); err != nil {
		return Content{}, &TimeError{err}
	}
	return c, nil
}

// timeIn returns the time of the value at a place of a tree.
func (t *TimeField) timeIn(tree any, place []string) (at int64, found bool, err error) {
	p := t.Path.boundTo(place)
	written, found := p.first(tree)
	switch {
	case t.IsOptional && (!found || written == nil || written == ""):
		return 0, false, nil
	case !found:
		return 0, false, fmt.Errorf("no time found at the JSON path %s", data.QuoteForMessage(p.String()))
	}
	at, err = t.Parse(strings.TrimSpace(ValueText(written)))
	return at, err == nil, err
}

// ValueText returns a value of a tree as text: a string without its quotes, and null for nil.
func ValueText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		return string(v)
	}
	text, err := json.Marshal(v)
	if err != nil { // this error cannot occur for values of trees
		return fmt.Sprint(v)
	}
	return string(text)
}

// unusableValue is a value that a format contains but that is neither a number nor a text, such as a table.
type unusableValue struct {
	Type string `json:"type"`
}

// numberValue returns a number as a value of a reading. NaN is missing.
func numberValue(v float64) any {
	switch {
	case v != v:
		return nil
	case !data.IsFinite(v):
		return strconv.FormatFloat(v, 'g', -1, 64) // a text such as +Inf, which is rejected as not finite
	}
	return json.Number(strconv.FormatFloat(v, 'g', -1, 64))
}

// ErrEmpty is the error of a payload without content. An empty message removes a retained value from the broker, and
// Victron Venus OS sends it for each value of a device that has disappeared.
var ErrEmpty = errors.New("the payload is empty")

// adviceOf returns advice for a payload that is valid in another format than the configured one, or "".
func adviceOf(text []byte, configured string) string {
	for _, name := range []string{FormatSparkplug, FormatInflux} {
		if name == configured {
			continue
		}
		valid := false
		switch name {
		case FormatSparkplug:
			p, err := sparkplug.Decode(text)
			valid = err == nil && len(p.Metrics) > 0
		case FormatInflux:
			c, err := influxDecoder{}.Decode(Message{Payload: text})
			valid = err == nil && len(c.readings) > 0
		}
		if valid {
			return fmt.Sprintf("; the payload looks like the format %s: set format: %s for its topic in data.topics",
				name, name)
		}
	}
	return ""
}
