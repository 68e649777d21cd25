package payload

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/data"
)

// opcUADecoder decodes the JSON messages of OPC UA PubSub (OPC 10000-14, section 7.2.5): a network message with data
// set messages of several writers, a list of network messages, one data set message, or only its payload. The name of a
// reading is the name of the field. Its labels are writer (the name of the data set writer), writer_id and publisher.
type opcUADecoder struct{}

const (
	// opcUABadStatus is set in the status code of a value that must not be used.
	opcUABadStatus = 1 << 31
	// maxOPCUADepth is the maximum nesting of a value in objects for its type.
	maxOPCUADepth = 4
)

// Decode implements Decoder.
func (opcUADecoder) Decode(m Message) (Content, error) {
	tree, err := ParseJSON(m.Payload)
	if err != nil {
		return Content{}, fmt.Errorf("%w%s", err, adviceOf(m.Payload, FormatOPCUA))
	}
	var c Content
	messages, isList := tree.([]any)
	if !isList {
		messages = []any{tree}
	}
	for i, message := range messages {
		object, isObject := message.(map[string]any)
		if !isObject {
			return Content{}, fmt.Errorf("OPC UA message %d is %s; want a JSON object: remove format: opcua from "+
				"data.topics, or correct the topic", i, data.QuoteForMessage(ValueText(message)))
		}
		if err := c.addOPCUANetworkMessage(object); err != nil {
			return Content{}, fmt.Errorf("OPC UA message %d: %w", i, err)
		}
	}
	return c, nil
}

// addOPCUANetworkMessage adds the readings of a network message, or of a message without the network message's header.
func (c *Content) addOPCUANetworkMessage(message map[string]any) error {
	var labels []Label
	if publisher := message["PublisherId"]; publisher != nil {
		labels = append(labels, Label{"publisher", ValueText(publisher)})
	}
	switch messages := message["Messages"].(type) {
	case []any:
		for _, one := range messages {
			object, isObject := one.(map[string]any)
			if !isObject {
				return errors.New("the list Messages contains a value that is not an object")
			}
			c.addOPCUADataSet(object, labels)
		}
	case map[string]any:
		c.addOPCUADataSet(messages, labels)
	case nil:
		c.addOPCUADataSet(message, labels) // other messages contain no payload, such as ua-metadata
	default:
		return errors.New("the member Messages is neither a list nor an object")
	}
	return nil
}

// addOPCUADataSet adds the readings of a data set message.
func (c *Content) addOPCUADataSet(message map[string]any, labels []Label) {
	labels = slices.Clone(labels)
	fields, hasHeader := message["Payload"].(map[string]any)
	id, hasID := message["DataSetWriterId"]
	name, hasName := message["DataSetWriterName"]
	if !hasHeader && !hasID && message["MessageType"] == nil {
		fields, hasName = message, false
	}
	var defaultTime Reading
	if hasHeader {
		defaultTime.setOPCUATime(message["Timestamp"])
	}
	if hasID {
		labels = append(labels, Label{"writer_id", ValueText(id)})
	}
	switch {
	case hasName:
		labels = append(labels, Label{"writer", ValueText(name)})
	case hasID:
		labels = append(labels, Label{"writer", ValueText(id)})
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		r := defaultTime
		r.Name, r.Labels = field, labels
		r.Value = r.readOPCUAValue(fields[field])
		c.readings = append(c.readings, r)
	}
}

// setOPCUATime sets the time of a reading. An absent time does not change it.
func (r *Reading) setOPCUATime(written any) {
	if written == nil {
		return
	}
	text := ValueText(written)
	at, err := time.Parse(time.RFC3339Nano, text)
	if r.TimeErr = nil; err != nil || at.Year() > 2261 {
		r.HasTime, r.TimeErr = false, fmt.Errorf("%s is not a time in the format 2026-03-01T12:00:00Z",
			data.QuoteForMessage(text))
		return
	}
	r.Time, r.HasTime = at.UnixNano(), true
}

// readOPCUAValue returns the value of a field. The field is a plain value, or an object with value, time and status,
// whose time becomes the time of the reading. A value with a bad status is treated as missing.
func (r *Reading) readOPCUAValue(field any) any {
	for range maxOPCUADepth {
		object, isObject := field.(map[string]any)
		if !isObject {
			return field
		}
		for _, key := range []string{"ServerTimestamp", "SourceTimestamp"} {
			r.setOPCUATime(object[key])
		}
		for _, key := range []string{"Status", "StatusCode"} {
			if isBadOPCUAStatus(object[key]) {
				return nil
			}
		}
		value, found := object["Value"]
		if !found {
			if value, found = object["Body"]; !found {
				break
			}
		}
		field = value
	}
	return field
}

// isBadOPCUAStatus reports whether a status code means that the value must not be used. The code is a number, or an
// object with the number under Code.
func isBadOPCUAStatus(status any) bool {
	if object, isObject := status.(map[string]any); isObject {
		if status = object["Code"]; status == nil {
			symbol, _ := object["Symbol"].(string)
			return strings.HasPrefix(symbol, "Bad")
		}
	}
	code, err := strconv.ParseUint(ValueText(status), 10, 32)
	return err == nil && code&opcUABadStatus != 0
}
