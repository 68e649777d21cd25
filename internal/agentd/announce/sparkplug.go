package announce

import (
	"bytes"
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/fedmesh/fedmesh/agent/predict"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/mqtt"
)

// sparkplug announces the device as an edge node of Sparkplug B (https://sparkplug.eclipse.org, version 3.0.0): births,
// data and deaths in protobuf. The prefix is the group id, by default the federation. It has no primary host.
type sparkplug struct {
	plainJSON
	birthNumber    uint64 // bdSeq: number of the connection, which associates a death with its birth
	sequenceNumber uint64 // seq of the next message
	values         []sparkplugMetric
}

func newSparkplug(d *Device) Announcer {
	s := &sparkplug{plainJSON: plainJSON{d}}
	if d.Prefix == "" {
		d.Prefix = d.Federation
	}
	// Hosts ignore the death of an earlier process because its number differs.
	s.birthNumber = uint64(d.Now().Unix()) % 256
	return s
}

// Data types of Sparkplug B.
const (
	sparkplugInt64   = 4
	sparkplugDouble  = 10
	sparkplugBoolean = 11
	sparkplugString  = 12
)

// rebirthMetric is the metric with which a host requests a birth.
const rebirthMetric = "Node Control/Rebirth"

// sparkplugMetric is a metric with a value of type uint64, float64, bool or string. A nil value is unknown.
type sparkplugMetric struct {
	name     string
	dataType uint64
	value    any
	unit     string
	at       time.Time // zero for the time of the message
}

// encode returns the metric in protobuf.
func (m *sparkplugMetric) encode(now time.Time) []byte {
	at := m.at
	if at.IsZero() {
		at = now
	}
	p := appendText(nil, 1, []byte(m.name))
	p = appendNumber(p, 3, uint64(at.UnixMilli()))
	p = appendNumber(p, 4, m.dataType)
	if m.unit != "" {
		value := appendText(appendNumber(nil, 1, sparkplugString), 8, []byte(m.unit))
		p = appendText(p, 9, appendText(appendText(nil, 1, []byte("engUnit")), 2, value))
	}
	switch v := m.value.(type) {
	case uint64:
		return appendNumber(p, 11, v)
	case float64:
		return protowire.AppendFixed64(protowire.AppendTag(p, 13, protowire.Fixed64Type), math.Float64bits(v))
	case bool:
		return appendNumber(p, 14, protowire.EncodeBool(v))
	case string:
		return appendText(p, 15, []byte(v))
	}
	return appendNumber(p, 7, 1) // is_null
}

func appendNumber(p []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(p, field, protowire.VarintType), v)
}

func appendText(p []byte, field protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(p, field, protowire.BytesType), v)
}

// message returns a message of the given kind. A death has no sequence number.
func (s *sparkplug) message(kind string, metrics ...sparkplugMetric) mqtt.Message {
	now := s.device.Now()
	p := appendNumber(nil, 1, uint64(now.UnixMilli()))
	for _, m := range metrics {
		p = appendText(p, 2, m.encode(now))
	}
	if kind == "NDEATH" {
		return mqtt.Message{Topic: s.topic(kind), Payload: p, QoS: mqtt.AtLeastOnce}
	}
	p = appendNumber(p, 3, s.sequenceNumber)
	s.sequenceNumber = (s.sequenceNumber + 1) % 256
	return mqtt.Message{Topic: s.topic(kind), Payload: p}
}

func (s *sparkplug) topic(kind string) string {
	return "spBv1.0/" + s.device.Prefix + "/" + kind + "/" + s.device.ID
}

func (s *sparkplug) birthMetric() sparkplugMetric {
	return sparkplugMetric{name: "bdSeq", dataType: sparkplugInt64, value: s.birthNumber}
}

// Will implements Announcer.
func (s *sparkplug) Will() mqtt.Message {
	s.birthNumber = (s.birthNumber + 1) % 256
	return s.message("NDEATH", s.birthMetric())
}

// Birth implements Announcer. A birth contains all metrics of the node, so that a new target needs a new birth.
func (s *sparkplug) Birth(health Health, target *modelfile.PredictionTarget) (device, forecasts []mqtt.Message) {
	metrics := []sparkplugMetric{s.birthMetric(), {name: rebirthMetric, dataType: sparkplugBoolean, value: false},
		{name: "health/problem", dataType: sparkplugBoolean, value: len(health.Problems) > 0}}
	if target != nil {
		metrics = append(metrics, s.values...)
	}
	s.sequenceNumber = 0
	return []mqtt.Message{s.message("NBIRTH", metrics...)}, nil
}

// Forecast implements Announcer. The time of a value is the time that the forecast is for.
func (s *sparkplug) Forecast(f predict.Forecast) ([]mqtt.Message, error) {
	all, err := s.plainJSON.Forecast(f)
	if err != nil {
		return nil, err
	}
	prefix := "forecast/"
	if f.Target.TargetColumn != "" {
		prefix = f.Target.TargetColumn + "/"
	}
	var residual, anomaly any
	if f.Residual != nil {
		residual, anomaly = *f.Residual, f.IsAnomaly
	}
	at, unit := f.TargetTime(), f.Target.Unit
	s.values = []sparkplugMetric{
		{prefix + "forecast", sparkplugDouble, f.Value, unit, at},
		{prefix + "residual", sparkplugDouble, residual, unit, at},
		{prefix + "anomaly", sparkplugBoolean, anomaly, "", at},
		{prefix + "model", sparkplugString, f.ModelName, "", at},
	}
	return append(all, s.message("NDATA", s.values...)), nil
}

// RequestFilters implements Announcer.
func (s *sparkplug) RequestFilters() []string { return []string{s.topic("NCMD")} }

// IsRequest implements Announcer. The node has only one metric that a host may write.
func (s *sparkplug) IsRequest(m mqtt.Message) bool {
	return bytes.Contains(m.Payload, []byte(rebirthMetric))
}
