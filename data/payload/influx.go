package payload

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/influxdata/line-protocol/v2/lineprotocol"
)

// influxDecoder decodes InfluxDB line protocol, the default format of Telegraf. The name of a reading is the name of
// the field. The labels of a reading are the tags of the line, and the measurement under the key "measurement". Times
// are in nanoseconds.
type influxDecoder struct{}

// measurementLabel is the key of the label with the measurement.
const measurementLabel = "measurement"

// Decode implements Decoder.
func (influxDecoder) Decode(m Message) (Content, error) {
	var c Content
	text := bytes.Trim(m.Payload, "\ufeff\x00")
	if len(bytes.TrimSpace(text)) == 0 {
		return c, ErrEmpty
	}
	d := lineprotocol.NewDecoderWithBytes(text)
	for line := 1; d.Next(); line++ {
		if err := c.addInfluxLine(d); err != nil {
			return Content{}, fmt.Errorf("line %d of line protocol: %w", line, err)
		}
	}
	if err := d.Err(); err != nil {
		return Content{}, fmt.Errorf("line protocol: %w", err)
	}
	return c, nil
}

// addInfluxLine adds the readings of the current line of a decoder.
func (c *Content) addInfluxLine(d *lineprotocol.Decoder) error {
	measurement, err := d.Measurement()
	if err != nil {
		return err
	}
	labels := []Label{{measurementLabel, validText(measurement)}}
	for {
		key, value, err := d.NextTag()
		if err != nil {
			return err
		}
		if key == nil {
			break
		}
		labels = append(labels, Label{validText(key), validText(value)})
	}
	first := len(c.readings)
	for {
		key, value, err := d.NextField()
		if err != nil {
			return err
		}
		if key == nil {
			break
		}
		c.readings = append(c.readings, Reading{Name: validText(key), Labels: labels, Value: influxValue(value)})
	}
	at, err := d.Time(lineprotocol.Nanosecond, time.Time{})
	if err != nil {
		return err
	}
	for i := range c.readings[first:] {
		if r := &c.readings[first+i]; !at.IsZero() {
			r.Time, r.HasTime = at.UnixNano(), true
		}
	}
	return nil
}

// influxValue converts a value of line protocol to a value of a reading.
func influxValue(v lineprotocol.Value) any {
	switch v.Kind() {
	case lineprotocol.Int:
		return json.Number(strconv.FormatInt(v.IntV(), 10))
	case lineprotocol.Uint:
		return json.Number(strconv.FormatUint(v.UintV(), 10))
	case lineprotocol.Float:
		return numberValue(v.FloatV())
	case lineprotocol.Bool:
		return v.BoolV()
	}
	return v.StringV()
}

// validText returns a copy of text in valid UTF-8.
func validText(text []byte) string { return strings.ToValidUTF8(string(text), "\ufffd") }
