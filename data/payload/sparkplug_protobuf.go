package payload

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// The message org.eclipse.tahu.protobuf.Payload of the Sparkplug specification, section 6.4.1. Only the fields of
// readings are decoded.

// sparkplugPayload is a decoded payload.
type sparkplugPayload struct {
	timestamp uint64 // in milliseconds since 1970; 0 means none
	seq       uint64
	hasSeq    bool
	metrics   []sparkplugMetric
}

// sparkplugMetric is a metric of a payload.
type sparkplugMetric struct {
	name      string
	alias     uint64
	hasAlias  bool
	timestamp uint64 // in milliseconds since 1970; 0 means none
	dataType  uint64
	isNull    bool
	valueSlot protowire.Number // number of the field with the value; 0 means none
	number    uint64           // value as bits, or 0 or 1 for a boolean
	text      string
}

// Numbers of the fields with a value.
const (
	sparkplugInt protowire.Number = iota + 10
	sparkplugLong
	sparkplugFloat
	sparkplugDouble
	sparkplugBoolean
	sparkplugString
	sparkplugBytes
)

// Data types of metrics.
const (
	sparkplugInt8 = iota + 1
	sparkplugInt16
	sparkplugInt32
	sparkplugInt64
)

// decodeSparkplugPayload decodes a payload.
func decodeSparkplugPayload(b []byte) (p sparkplugPayload, err error) {
	if len(b) == 0 {
		return p, errEmpty
	}
	err = forEachField(b, func(number protowire.Number, v fieldValue) error {
		switch number {
		case 1:
			p.timestamp, err = v.varint()
		case 2:
			var inner []byte
			if inner, err = v.bytes(); err != nil {
				return err
			}
			var m sparkplugMetric
			if m, err = decodeSparkplugMetric(inner); err != nil {
				return fmt.Errorf("metric %d: %w", len(p.metrics), err)
			}
			p.metrics = append(p.metrics, m)
		case 3:
			p.seq, err = v.varint()
			p.hasSeq = true
		}
		return err
	})
	return p, err
}

// decodeSparkplugMetric decodes a metric.
func decodeSparkplugMetric(b []byte) (m sparkplugMetric, err error) {
	err = forEachField(b, func(number protowire.Number, v fieldValue) error {
		var text []byte
		switch number {
		case 1:
			text, err = v.bytes()
			m.name = validText(text)
		case 2:
			m.alias, err = v.varint()
			m.hasAlias = true
		case 3:
			m.timestamp, err = v.varint()
		case 4:
			m.dataType, err = v.varint()
		case 7:
			var isNull uint64
			isNull, err = v.varint()
			m.isNull = isNull != 0
		case sparkplugInt, sparkplugLong, sparkplugBoolean:
			m.number, err = v.varint()
		case sparkplugFloat:
			m.number, err = v.fixed(protowire.Fixed32Type)
		case sparkplugDouble:
			m.number, err = v.fixed(protowire.Fixed64Type)
		case sparkplugString:
			text, err = v.bytes()
			m.text = validText(text)
		}
		if number >= sparkplugInt && number < sparkplugInt+10 { // int_value to extension_value
			m.valueSlot = number
		}
		return err
	})
	return m, err
}

// value returns the value of the metric, or nil if it is null or absent.
func (m *sparkplugMetric) value() any {
	if m.isNull {
		return nil
	}
	switch m.valueSlot {
	case 0:
		return nil
	case sparkplugInt, sparkplugLong:
		switch m.dataType { // signed types are transferred as unsigned numbers
		case sparkplugInt8:
			return integerValue(int64(int8(m.number)))
		case sparkplugInt16:
			return integerValue(int64(int16(m.number)))
		case sparkplugInt32:
			return integerValue(int64(int32(m.number)))
		case sparkplugInt64:
			return integerValue(int64(m.number))
		}
		return json.Number(strconv.FormatUint(m.number, 10))
	case sparkplugFloat:
		v := math.Float32frombits(uint32(m.number))
		if v-v != 0 {
			return numberValue(float64(v))
		}
		return json.Number(strconv.FormatFloat(float64(v), 'g', -1, 32))
	case sparkplugDouble:
		return numberValue(math.Float64frombits(m.number))
	case sparkplugBoolean:
		return m.number != 0
	case sparkplugString:
		return m.text
	}
	return unusableValue{fmt.Sprintf("Sparkplug data type %d", m.dataType)}
}

func integerValue(v int64) any { return json.Number(strconv.FormatInt(v, 10)) }

// birthSession returns the number of the session, or "" if the payload has none.
func (p *sparkplugPayload) birthSession() string {
	for _, m := range p.metrics {
		if m.name == bdSeqMetric {
			return strconv.FormatUint(m.number, 10)
		}
	}
	return ""
}

// encodeRebirthCommand encodes the payload of a command that requests the births of a node.
func encodeRebirthCommand(now time.Time) []byte {
	const booleanType = 11
	at := uint64(max(0, now.UnixMilli()))
	m := protowire.AppendTag(nil, 1, protowire.BytesType)
	m = protowire.AppendString(m, rebirthMetric)
	for _, field := range []struct {
		number protowire.Number
		value  uint64
	}{{3, at}, {4, booleanType}, {sparkplugBoolean, 1}} {
		m = protowire.AppendTag(m, field.number, protowire.VarintType)
		m = protowire.AppendVarint(m, field.value)
	}
	p := protowire.AppendTag(nil, 1, protowire.VarintType)
	p = protowire.AppendVarint(p, at)
	p = protowire.AppendTag(p, 2, protowire.BytesType)
	return protowire.AppendBytes(p, m)
}

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
