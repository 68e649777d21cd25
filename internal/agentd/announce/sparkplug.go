package announce

import (
	"cmp"
	"slices"

	"github.com/fedmesh/fedmesh/agent/predict"
	"github.com/fedmesh/fedmesh/data/sparkplug"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/mqtt"
)

// sparkplugNode announces the device as an edge node of Sparkplug B (https://sparkplug.eclipse.org, version 3.0.0):
// births, data and deaths in protobuf. The prefix is the group id, by default the federation. sparkplugNode has no
// primary host.
type sparkplugNode struct {
	plainJSON
	birthNumber    uint64 // connection number (bdSeq in Sparkplug), which associates a death with its birth
	sequenceNumber uint64 // sequence number (seq in Sparkplug) of the next message
	values         []sparkplug.Metric
}

func newSparkplug(d *Device) Announcer {
	s := &sparkplugNode{plainJSON: plainJSON{d}}
	if d.Prefix == "" {
		d.Prefix = d.Federation
	}
	// The birth number depends on the start time, so that hosts ignore a late death message of an earlier process.
	s.birthNumber = uint64(d.Now().Unix()) % 256
	return s
}

// message returns a message of the given kind. Metrics without a time have the time of the message. A death has no
// sequence number.
func (s *sparkplugNode) message(kind string, metrics ...sparkplug.Metric) mqtt.Message {
	p := sparkplug.Payload{Timestamp: sparkplug.Milliseconds(s.device.Now()), Metrics: slices.Clone(metrics)}
	for i := range p.Metrics {
		p.Metrics[i].Timestamp = cmp.Or(p.Metrics[i].Timestamp, p.Timestamp)
	}
	if kind == "NDEATH" {
		return mqtt.Message{Topic: s.topic(kind), Payload: p.Encode(), QoS: mqtt.AtLeastOnce}
	}
	p.Seq, p.HasSeq = s.sequenceNumber, true
	s.sequenceNumber = (s.sequenceNumber + 1) % 256
	return mqtt.Message{Topic: s.topic(kind), Payload: p.Encode()}
}

func (s *sparkplugNode) topic(kind string) string {
	return sparkplug.Namespace + "/" + s.device.Prefix + "/" + kind + "/" + s.device.ID
}

func (s *sparkplugNode) birthSession() sparkplug.Metric {
	return sparkplug.NewInt64(sparkplug.BirthSessionMetric, s.birthNumber)
}

// Will implements Announcer.
func (s *sparkplugNode) Will() mqtt.Message {
	s.birthNumber = (s.birthNumber + 1) % 256
	return s.message("NDEATH", s.birthSession())
}

// Birth implements Announcer. A birth contains all metrics of the node, so each change of the target requires a new
// birth.
func (s *sparkplugNode) Birth(health Health, target *modelfile.PredictionTarget) (device, forecasts []mqtt.Message) {
	metrics := []sparkplug.Metric{s.birthSession(), sparkplug.NewBoolean(sparkplug.RebirthMetric, false),
		sparkplug.NewBoolean("health/problem", len(health.Problems) > 0)}
	if target != nil {
		metrics = append(metrics, s.values...)
	}
	s.sequenceNumber = 0
	return []mqtt.Message{s.message("NBIRTH", metrics...)}, nil
}

// Forecast implements Announcer. The timestamp of each value is the time that the forecast is for.
func (s *sparkplugNode) Forecast(f predict.Forecast) ([]mqtt.Message, error) {
	all, err := s.plainJSON.Forecast(f)
	if err != nil {
		return nil, err
	}
	prefix := "forecast/"
	if f.Target.TargetColumn != "" {
		prefix = f.Target.TargetColumn + "/"
	}
	residual := sparkplug.NewNull(prefix+"residual", sparkplug.Double)
	anomaly := sparkplug.NewNull(prefix+"anomaly", sparkplug.Boolean)
	if f.Residual != nil {
		residual = sparkplug.NewDouble(residual.Name, *f.Residual)
		anomaly = sparkplug.NewBoolean(anomaly.Name, f.IsAnomaly)
	}
	forecast := sparkplug.NewDouble(prefix+"forecast", f.Value)
	forecast.Unit, residual.Unit = f.Target.Unit, f.Target.Unit
	s.values = []sparkplug.Metric{forecast, residual, anomaly, sparkplug.NewString(prefix+"model", f.ModelName)}
	for i := range s.values {
		s.values[i].Timestamp = sparkplug.Milliseconds(f.TargetTime())
	}
	return append(all, s.message("NDATA", s.values...)), nil
}

// RequestFilters implements Announcer.
func (s *sparkplugNode) RequestFilters() []string { return []string{s.topic("NCMD")} }

// IsRequest implements Announcer.
func (s *sparkplugNode) IsRequest(m mqtt.Message) bool {
	p, err := sparkplug.Decode(m.Payload)
	return err == nil && p.RequestsRebirth()
}
