package payload

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/sparkplug"
)

// Topics of Sparkplug B are spBv1.0/GROUP/TYPE/NODE and spBv1.0/GROUP/TYPE/NODE/DEVICE. An edge node first publishes a
// birth message of itself (NBIRTH) and of each device (DBIRTH), which define a number (alias) for each metric. Data
// messages (NDATA, DDATA) contain only metrics that have changed, possibly with the alias instead of the name. All
// messages of a node are numbered modulo 256. A death message (NDEATH, DDEATH) makes all values invalid.

const (
	// sparkplugTypeLevel is the level of a topic that contains the type of the message.
	sparkplugTypeLevel = 2
	// maxSparkplugNodes is the maximum number of edge nodes of a subscription.
	maxSparkplugNodes = 1024
	// maxSparkplugMetrics is the maximum number of metrics with aliases of a subscription.
	maxSparkplugMetrics = 65_536
	// maxSparkplugDevices is the maximum number of devices of a subscription.
	maxSparkplugDevices = 16_384
	// maxSparkplugName is the maximum length of a topic and of the name and the unit of a metric with an alias, in
	// bytes.
	maxSparkplugName = 1024
	// minRebirthInterval is the minimum time between two birth requests to the same edge node.
	minRebirthInterval = time.Minute
)

// sparkplugDecoder decodes Sparkplug B. It keeps the state of each edge node.
type sparkplugDecoder struct {
	requestsBirths bool
	nodes          map[string]*sparkplugNode // state of each edge node, by GROUP/NODE
}

// sparkplugNode is the state of an edge node.
type sparkplugNode struct {
	isBorn        bool // whether the birth message of the current session has been received
	lastSeq       uint64
	hasSeq        bool
	birthSession  string // session number (bdSeq) of the birth message
	metricByAlias map[uint64]sparkplugMetricDefinition
	devices       map[string]bool // devices of the node that are known
	problem       string          // reason why a birth message is missing
	requestedAt   time.Time       // time of the last birth request
}

// sparkplugMetricDefinition is the definition of a metric in a birth message.
type sparkplugMetricDefinition struct {
	device, name, unit string
	dataType           uint64
}

// sparkplugTopic is a parsed topic.
type sparkplugTopic struct{ group, messageType, node, device string }

func newSparkplugDecoder(o Options) *sparkplugDecoder {
	return &sparkplugDecoder{requestsBirths: o.RequestsBirths, nodes: map[string]*sparkplugNode{}}
}

// sparkplugSubscription returns the filter for all messages of the edge nodes that a topic filter selects.
func sparkplugSubscription(filter string) (string, error) {
	levels := strings.Split(filter, "/")
	if levels[0] == sparkplug.Namespace && len(levels) <= 4 && levels[len(levels)-1] == "#" {
		return filter, nil
	}
	if levels[0] != sparkplug.Namespace || len(levels) != 4 && len(levels) != 5 {
		return "", fmt.Errorf("topic %s is not a Sparkplug topic; want spBv1.0/GROUP/+/NODE or "+
			"spBv1.0/GROUP/+/NODE/DEVICE, in double quotes if a name contains spaces", data.QuoteForMessage(filter))
	}
	levels[sparkplugTypeLevel] = "+"
	return strings.Join(levels[:4], "/") + "/#", nil
}

// sparkplugDeviceTopic returns a topic or a filter with the type of the message replaced by DATA, which is the same for
// all messages of a device or a node.
func sparkplugDeviceTopic(topic string) string {
	levels := strings.Split(topic, "/")
	if len(levels) > sparkplugTypeLevel && levels[sparkplugTypeLevel] != "#" {
		levels[sparkplugTypeLevel] = "DATA"
	}
	return strings.Join(levels, "/")
}

// parseSparkplugTopic parses the topic of a message.
func parseSparkplugTopic(topic string) (t sparkplugTopic, err error) {
	levels := strings.Split(topic, "/")
	if levels[0] != sparkplug.Namespace || len(levels) < 4 || len(levels) > 5 || len(topic) > maxSparkplugName {
		return t, fmt.Errorf("topic %s is not a Sparkplug topic such as spBv1.0/GROUP/DDATA/NODE/DEVICE",
			data.QuoteForMessage(topic))
	}
	t = sparkplugTopic{group: levels[1], messageType: levels[sparkplugTypeLevel], node: levels[3]}
	if len(levels) == 5 {
		t.device = levels[4]
	}
	return t, nil
}

// deviceTopic returns the topic of the readings of a device, or of the node if device is empty.
func (t sparkplugTopic) deviceTopic(device string) string {
	topic := sparkplug.Namespace + "/" + t.group + "/DATA/" + t.node
	if device != "" {
		topic += "/" + device
	}
	return topic
}

// Decode implements Decoder. Retained messages are ignored, because Sparkplug does not allow them. STATE messages and
// commands contain no readings.
func (d *sparkplugDecoder) Decode(m Message) (Content, error) {
	if m.IsRetained || strings.HasPrefix(m.Topic, sparkplug.Namespace+"/STATE/") {
		return Content{}, nil
	}
	t, err := parseSparkplugTopic(m.Topic)
	if err != nil || t.messageType == "NCMD" || t.messageType == "DCMD" {
		return Content{}, err
	}
	if text := trimPayload(m.Payload); bytes.HasPrefix(text, []byte("{")) {
		return Content{},
			errors.New("the payload is JSON, but Sparkplug B is encoded with Protobuf: set format: " +
				"json for its topic in data.topics, and select the value with a path, such as " +
				"metrics[name=Temperature].value")
	}
	p, err := sparkplug.Decode(m.Payload)
	if err != nil {
		return Content{}, fmt.Errorf("the Sparkplug payload of %d bytes is invalid: %w", len(m.Payload), err)
	}
	n := d.nodes[t.group+"/"+t.node]
	if n == nil {
		if len(d.nodes) == maxSparkplugNodes {
			return Content{}, fmt.Errorf("more than %d Sparkplug edge nodes: use narrower topics in data.columns",
				maxSparkplugNodes)
		}
		n = &sparkplugNode{metricByAlias: map[uint64]sparkplugMetricDefinition{}, devices: map[string]bool{}}
		d.nodes[t.group+"/"+t.node] = n
	}
	if err := d.checkRoom(n, t, p); err != nil {
		return Content{}, err
	}
	c, err := n.handle(t, p)
	if err != nil {
		return Content{}, err
	}
	c.NodeProblem = d.problemOf(n, t, m.ReceivedAt)
	return c, nil
}

// checkRoom returns an error if the limits do not permit the metrics or the device of a message.
func (d *sparkplugDecoder) checkRoom(n *sparkplugNode, t sparkplugTopic, p sparkplug.Payload) error {
	isBirth, isNewDevice := strings.HasSuffix(t.messageType, "BIRTH"), t.device != "" && !n.devices[t.device]
	if !isBirth && !isNewDevice {
		return nil
	}
	replacesMetrics := t.messageType == "NBIRTH"
	metrics, devices := 0, 0
	for _, other := range d.nodes {
		devices += len(other.devices)
		if other != n || !replacesMetrics {
			metrics += len(other.metricByAlias)
		}
	}
	if isNewDevice && devices >= maxSparkplugDevices {
		return fmt.Errorf("more than %d Sparkplug devices: use narrower topics in data.columns", maxSparkplugDevices)
	}
	if !isBirth {
		return nil
	}
	for _, m := range p.Metrics {
		if !m.HasAlias {
			continue
		}
		if _, known := n.metricByAlias[m.Alias]; !known || replacesMetrics {
			metrics++
		}
		if len(m.Name)+len(m.Unit) > maxSparkplugName {
			return fmt.Errorf("the name and the unit of a metric have %d bytes; want at most %d",
				len(m.Name)+len(m.Unit),
				maxSparkplugName)
		}
	}
	if metrics > maxSparkplugMetrics {
		return fmt.Errorf("more than %d Sparkplug metrics with aliases: use narrower topics in data.columns",
			maxSparkplugMetrics)
	}
	return nil
}

// handle updates the state of the edge node and returns the readings of a message.
func (n *sparkplugNode) handle(t sparkplugTopic, p sparkplug.Payload) (Content, error) {
	isOfDevice := strings.HasPrefix(t.messageType, "D")
	if isOfDevice != (t.device != "") {
		return Content{}, fmt.Errorf("a topic of type %s has the wrong number of levels",
			data.QuoteForMessage(t.messageType))
	}
	switch t.messageType {
	case "NBIRTH":
		*n = sparkplugNode{isBorn: true, metricByAlias: map[uint64]sparkplugMetricDefinition{},
			devices: map[string]bool{}, requestedAt: n.requestedAt}
		n.birthSession = p.BirthSession()
		n.lastSeq, n.hasSeq = p.Seq, true
		return n.define(t, p), nil
	case "NDEATH":
		if session := p.BirthSession(); n.birthSession != "" && session != "" && session != n.birthSession {
			return Content{}, nil // the message is the will of an earlier session
		}
		return n.die(t), nil
	case "DBIRTH", "DDATA", "NDATA", "DDEATH":
	default:
		return Content{}, fmt.Errorf("unknown Sparkplug message type %s", data.QuoteForMessage(t.messageType))
	}
	n.checkSeq(p)
	if t.device != "" {
		n.devices[t.device] = true
	}
	switch t.messageType {
	case "DBIRTH":
		return n.define(t, p), nil
	case "DDEATH":
		return Content{readings: []Reading{offlineReading(t.deviceTopic(t.device))}}, nil
	}
	return n.read(t, p), nil
}

// checkSeq checks that the number of a message follows the number of the previous message.
func (n *sparkplugNode) checkSeq(p sparkplug.Payload) {
	const modulus = 256
	switch want := (n.lastSeq + 1) % modulus; {
	case !n.isBorn:
		if n.problem == "" {
			n.problem = "no birth message has been received"
		}
	case n.hasSeq && p.HasSeq && p.Seq != want && p.Seq != n.lastSeq:
		n.problem = fmt.Sprintf("message %d was received after message %d: messages were lost", p.Seq, n.lastSeq)
	}
	if p.HasSeq {
		n.lastSeq, n.hasSeq = p.Seq, true
	}
}

// define stores the metric definitions of a birth message and returns the readings in the message.
func (n *sparkplugNode) define(t sparkplugTopic, p sparkplug.Payload) Content {
	for _, m := range p.Metrics {
		if !m.HasAlias || m.Name == "" {
			continue
		}
		n.metricByAlias[m.Alias] = sparkplugMetricDefinition{t.device, m.Name, m.Unit, m.DataType}
	}
	if t.device == "" {
		n.problem = ""
	}
	c := n.read(t, p)
	c.BirthTopic = t.deviceTopic(t.device)
	return c
}

// read returns the readings of the metrics in a data message. If a metric has an unknown alias, the birth message of
// the node is required.
func (n *sparkplugNode) read(t sparkplugTopic, p sparkplug.Payload) (c Content) {
	topic := t.deviceTopic(t.device)
	for _, m := range p.Metrics {
		if m.HasAlias {
			of, found := n.metricByAlias[m.Alias]
			switch {
			case m.Name == "" && (!found || of.device != t.device):
				n.problem = fmt.Sprintf("metric alias %d is unknown", m.Alias)
				continue
			case m.Name == "":
				m.Name = of.name
			}
			if m.DataType == 0 && found {
				m.DataType = of.dataType
			}
			if found {
				m.Unit = cmp.Or(m.Unit, of.unit)
			}
		}
		if m.Name == "" || m.Name == sparkplug.BirthSessionMetric || strings.HasPrefix(m.Name, "Node Control/") ||
			strings.HasPrefix(m.Name, "Device Control/") {
			continue
		}
		r := Reading{Name: m.Name, Topic: topic, Value: sparkplugValue(&m), Unit: m.Unit}
		at := m.Timestamp
		if at == 0 {
			at = p.Timestamp
		}
		if r.HasTime = at > 0 && at < 1<<63/1_000_000; r.HasTime {
			r.Time = int64(at) * int64(time.Millisecond)
		}
		c.readings = append(c.readings, r)
	}
	return c
}

// die returns the readings that mark the node and its devices as unavailable, and discards the metric definitions.
func (n *sparkplugNode) die(t sparkplugTopic) (c Content) {
	c.readings = append(c.readings, offlineReading(t.deviceTopic("")))
	for device := range n.devices {
		c.readings = append(c.readings, offlineReading(t.deviceTopic(device)))
	}
	slices.SortFunc(c.readings, func(a, b Reading) int { return strings.Compare(a.Topic, b.Topic) })
	n.isBorn, n.hasSeq, n.problem = false, false, ""
	clear(n.metricByAlias)
	return c
}

// offlineReading returns the reading that marks a device as unavailable.
func offlineReading(topic string) Reading { return Reading{Topic: topic, Availability: Offline} }

// problemOf returns the problem of a node and, if allowed, the command that requests the node's birth messages.
func (d *sparkplugDecoder) problemOf(n *sparkplugNode, t sparkplugTopic, now time.Time) *NodeProblem {
	p := &NodeProblem{Node: t.group + "/" + t.node}
	if n.problem == "" {
		return p
	}
	p.Problem = fmt.Sprintf("Sparkplug node %q: %s", p.Node, n.problem)
	if !d.requestsBirths {
		p.Problem += "; set rebirth: true for its topic in data.topics, so that agentd requests the births, " +
			"or restart the node"
		return p
	}
	if n.requestedAt.IsZero() || now.Sub(n.requestedAt) >= minRebirthInterval || now.Before(n.requestedAt) {
		n.requestedAt = now
		p.CommandTopic = sparkplug.Namespace + "/" + t.group + "/NCMD/" + t.node
		command := sparkplug.RebirthCommand(now)
		p.Command = command.Encode()
	}
	return p
}

// sparkplugValue returns the value of a metric, or nil if it is null or absent.
func sparkplugValue(m *sparkplug.Metric) any {
	if m.IsNull {
		return nil
	}
	switch m.ValueField {
	case 0:
		return nil
	case sparkplug.FieldInt, sparkplug.FieldLong:
		switch m.DataType { // signed types are transferred as unsigned numbers
		case sparkplug.Int8:
			return integerValue(int64(int8(m.Bits)))
		case sparkplug.Int16:
			return integerValue(int64(int16(m.Bits)))
		case sparkplug.Int32:
			return integerValue(int64(int32(m.Bits)))
		case sparkplug.Int64:
			return integerValue(int64(m.Bits))
		}
		return json.Number(strconv.FormatUint(m.Bits, 10))
	case sparkplug.FieldFloat:
		v := math.Float32frombits(uint32(m.Bits))
		if v-v != 0 {
			return numberValue(float64(v))
		}
		return json.Number(strconv.FormatFloat(float64(v), 'g', -1, 32))
	case sparkplug.FieldDouble:
		return numberValue(math.Float64frombits(m.Bits))
	case sparkplug.FieldBoolean:
		return m.Bits != 0
	case sparkplug.FieldString:
		return m.Text
	}
	return unusableValue{fmt.Sprintf("Sparkplug data type %d", m.DataType)}
}

func integerValue(v int64) any { return json.Number(strconv.FormatInt(v, 10)) }
