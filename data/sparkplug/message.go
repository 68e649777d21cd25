// Package sparkplug encodes and decodes payloads of Sparkplug B (https://sparkplug.eclipse.org, version 3.0.0). A
// payload is the message org.eclipse.tahu.protobuf.Payload of section 6.4.1 of the specification. The package supports
// the fields of metrics with single values, and their units.
package sparkplug

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Namespace is the first level of all topics.
const Namespace = "spBv1.0"

// Names of metrics with a meaning in the protocol.
const (
	RebirthMetric = "Node Control/Rebirth" // with this metric, a host requests the births of a node
	// BirthSessionMetric contains the session number that connects the death message of a node with its birth message.
	BirthSessionMetric = "bdSeq"
)

// unitProperty is the property of a metric with its unit.
const unitProperty = "engUnit"

// Payload is the content of a message.
type Payload struct {
	Timestamp uint64 // in milliseconds since 1970; 0 means none
	Seq       uint64 // number of the message, from 0 to 255
	HasSeq    bool
	Metrics   []Metric
}

// Metric is a metric of a payload.
type Metric struct {
	Name       string // empty if the metric has only an alias
	Alias      uint64
	HasAlias   bool
	Timestamp  uint64 // in milliseconds since 1970; 0 means none
	DataType   uint64 // data type of the value; 0 means none
	IsNull     bool   // whether the value is unknown
	Unit       string // unit in the property engUnit; empty means no unit
	ValueField Field  // field that contains the value; 0 means none
	Bits       uint64 // value as bits, or 0 or 1 for a boolean
	Text       string // text, if ValueField is FieldString
}

// Field is the number of a field with a value.
type Field = protowire.Number

// Fields with values.
const (
	FieldInt Field = iota + 10
	FieldLong
	FieldFloat
	FieldDouble
	FieldBoolean
	FieldString
	FieldBytes
	lastValueField Field = 19 // extension_value
)

// Data types of metrics.
const (
	Int8    = 1
	Int16   = 2
	Int32   = 3
	Int64   = 4
	Double  = 10
	Boolean = 11
	String  = 12
)

// NewInt64 returns a metric with an integer.
func NewInt64(name string, v uint64) Metric {
	return Metric{Name: name, DataType: Int64, ValueField: FieldLong, Bits: v}
}

// NewDouble returns a metric with a number.
func NewDouble(name string, v float64) Metric {
	return Metric{Name: name, DataType: Double, ValueField: FieldDouble, Bits: math.Float64bits(v)}
}

// NewBoolean returns a metric with a boolean.
func NewBoolean(name string, v bool) Metric {
	return Metric{Name: name, DataType: Boolean, ValueField: FieldBoolean, Bits: protowire.EncodeBool(v)}
}

// NewString returns a metric with a text.
func NewString(name, v string) Metric {
	return Metric{Name: name, DataType: String, ValueField: FieldString, Text: v}
}

// NewNull returns a metric whose value is unknown.
func NewNull(name string, dataType uint64) Metric {
	return Metric{Name: name, DataType: dataType, IsNull: true}
}

// Milliseconds returns a time as a timestamp.
func Milliseconds(t time.Time) uint64 { return uint64(max(0, t.UnixMilli())) }

// RebirthCommand returns the payload of a command that requests the birth messages of a node.
func RebirthCommand(now time.Time) Payload {
	m := NewBoolean(RebirthMetric, true)
	m.Timestamp = Milliseconds(now)
	return Payload{Timestamp: m.Timestamp, Metrics: []Metric{m}}
}

// RequestsRebirth reports whether the payload is a command that requests the birth messages of a node.
func (p *Payload) RequestsRebirth() bool {
	return slices.ContainsFunc(p.Metrics, func(m Metric) bool {
		return m.Name == RebirthMetric && m.ValueField == FieldBoolean && m.Bits != 0
	})
}

// BirthSession returns the number of the session, or "" if the payload has none.
func (p *Payload) BirthSession() string {
	for _, m := range p.Metrics {
		if m.Name == BirthSessionMetric {
			return strconv.FormatUint(m.Bits, 10)
		}
	}
	return ""
}

// Encode encodes the payload.
func (p *Payload) Encode() []byte {
	var b []byte
	if p.Timestamp > 0 {
		b = appendNumber(b, 1, p.Timestamp)
	}
	for i := range p.Metrics {
		b = appendBytes(b, 2, p.Metrics[i].encode())
	}
	if p.HasSeq {
		b = appendNumber(b, 3, p.Seq)
	}
	return b
}

func (m *Metric) encode() (b []byte) {
	if m.Name != "" {
		b = appendBytes(b, 1, []byte(m.Name))
	}
	if m.HasAlias {
		b = appendNumber(b, 2, m.Alias)
	}
	if m.Timestamp > 0 {
		b = appendNumber(b, 3, m.Timestamp)
	}
	if m.DataType > 0 {
		b = appendNumber(b, 4, m.DataType)
	}
	if m.IsNull {
		b = appendNumber(b, 7, 1)
	}
	if m.Unit != "" {
		value := appendBytes(appendNumber(nil, 1, String), 8, []byte(m.Unit))
		b = appendBytes(b, 9, appendBytes(appendBytes(nil, 1, []byte(unitProperty)), 2, value))
	}
	switch m.ValueField {
	case FieldInt, FieldLong, FieldBoolean:
		return appendNumber(b, m.ValueField, m.Bits)
	case FieldFloat:
		return protowire.AppendFixed32(protowire.AppendTag(b, m.ValueField, protowire.Fixed32Type), uint32(m.Bits))
	case FieldDouble:
		return protowire.AppendFixed64(protowire.AppendTag(b, m.ValueField, protowire.Fixed64Type), m.Bits)
	case FieldString, FieldBytes:
		return appendBytes(b, m.ValueField, []byte(m.Text))
	}
	return b
}

func appendNumber(b []byte, field Field, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

func appendBytes(b []byte, field Field, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), v)
}

// Decode decodes a payload. It returns an error for an empty payload.
func Decode(b []byte) (p Payload, err error) {
	if len(b) == 0 {
		return p, errors.New("the payload is empty")
	}
	err = forEachField(b, func(number protowire.Number, v fieldValue) error {
		switch number {
		case 1:
			p.Timestamp, err = v.varint()
		case 2:
			var inner []byte
			if inner, err = v.bytes(); err != nil {
				return err
			}
			var m Metric
			if m, err = decodeMetric(inner); err != nil {
				return fmt.Errorf("metric %d: %w", len(p.Metrics), err)
			}
			p.Metrics = append(p.Metrics, m)
		case 3:
			p.Seq, err = v.varint()
			p.HasSeq = true
		}
		return err
	})
	return p, err
}

// decodeMetric decodes a metric.
func decodeMetric(b []byte) (m Metric, err error) {
	err = forEachField(b, func(number protowire.Number, v fieldValue) error {
		var text []byte
		switch number {
		case 1:
			text, err = v.bytes()
			m.Name = validText(text)
		case 2:
			m.Alias, err = v.varint()
			m.HasAlias = true
		case 3:
			m.Timestamp, err = v.varint()
		case 4:
			m.DataType, err = v.varint()
		case 7:
			var isNull uint64
			isNull, err = v.varint()
			m.IsNull = isNull != 0
		case 9:
			if text, err = v.bytes(); err == nil {
				m.Unit, err = decodeUnit(text)
			}
		case FieldInt, FieldLong, FieldBoolean:
			m.Bits, err = v.varint()
		case FieldFloat:
			m.Bits, err = v.fixed(protowire.Fixed32Type)
		case FieldDouble:
			m.Bits, err = v.fixed(protowire.Fixed64Type)
		case FieldString:
			text, err = v.bytes()
			m.Text = validText(text)
		}
		if number >= FieldInt && number <= lastValueField {
			m.ValueField = number
		}
		return err
	})
	return m, err
}

// decodeUnit returns the unit in the properties of a metric, or "" if the metric has no unit. The keys and the values
// of the properties are in the same order.
func decodeUnit(b []byte) (unit string, err error) {
	var keys, values []string
	err = forEachField(b, func(number protowire.Number, v fieldValue) error {
		text, err := v.bytes()
		switch {
		case err != nil:
			return err
		case number == 1:
			keys = append(keys, validText(text))
		case number == 2:
			value := ""
			err = forEachField(text, func(number protowire.Number, v fieldValue) error {
				if number != 8 { // the value is not a text
					return nil
				}
				text, err := v.bytes()
				value = validText(text)
				return err
			})
			values = append(values, value)
		}
		return err
	})
	if i := slices.Index(keys, unitProperty); err == nil && i >= 0 && i < len(values) {
		unit = values[i]
	}
	return unit, err
}

// validText returns a copy of text in valid UTF-8.
func validText(text []byte) string { return strings.ToValidUTF8(string(text), "\ufffd") }

// fieldValue is the encoded value of a field.
type fieldValue struct {
	wireType protowire.Type
	text     []byte
}

var errWireType = errors.New("a field has an unexpected type")

// forEachField calls do with each field of a message, and adds the number of the field to an error.
func forEachField(b []byte, do func(number protowire.Number, v fieldValue) error) error {
	for rest := b; len(rest) > 0; {
		number, wireType, n := protowire.ConsumeTag(rest)
		if n < 0 {
			return fmt.Errorf("byte %d: %w", len(b)-len(rest), protowire.ParseError(n))
		}
		size := protowire.ConsumeFieldValue(number, wireType, rest[n:])
		if size < 0 {
			return fmt.Errorf("field %d at byte %d: %w", number, len(b)-len(rest), protowire.ParseError(size))
		}
		if err := do(number, fieldValue{wireType, rest[n : n+size]}); err != nil {
			return fmt.Errorf("field %d at byte %d: %w", number, len(b)-len(rest), err)
		}
		rest = rest[n+size:]
	}
	return nil
}

// varint returns the value of an integer or boolean field.
func (v fieldValue) varint() (uint64, error) {
	if v.wireType != protowire.VarintType {
		return 0, errWireType
	}
	number, n := protowire.ConsumeVarint(v.text)
	return number, protowire.ParseError(min(n, 0))
}

// fixed returns the bits of a field of a fixed size.
func (v fieldValue) fixed(want protowire.Type) (uint64, error) {
	switch {
	case v.wireType != want:
		return 0, errWireType
	case want == protowire.Fixed32Type:
		bits, n := protowire.ConsumeFixed32(v.text)
		return uint64(bits), protowire.ParseError(min(n, 0))
	}
	bits, n := protowire.ConsumeFixed64(v.text)
	return bits, protowire.ParseError(min(n, 0))
}

// bytes returns the content of a text field or a nested message.
func (v fieldValue) bytes() ([]byte, error) {
	if v.wireType != protowire.BytesType {
		return nil, errWireType
	}
	text, n := protowire.ConsumeBytes(v.text)
	return text, protowire.ParseError(min(n, 0))
}
