// Package observe defines how an event describes itself: with log records, metric samples, conditions and values that a
// status shows, all as plain data.
//
// An event is a struct in the file of the feature that emits it. Its Describe method is the only place that says what
// operators see of the event:
//
//	// CertificateRenewed: the agent stored a renewed broker certificate.
//	type CertificateRenewed struct{ Expires time.Time }
//
//	// Describe implements observe.Event.
//	func (e CertificateRenewed) Describe(d *observe.EventDescription) {
//		d.Log(observe.Info, "certificate renewed", "expires", e.Expires)
//		d.SetGauge(certificateExpires, observe.UnixSeconds(e.Expires))
//		d.ResolveCondition("certificate")
//	}
//
// Readers of descriptions know no event: internal/daemon.EventDispatcher writes the log, metrics.EventMetrics keeps the
// metrics, and internal/status.ConditionBoard keeps the conditions and the status values.
package observe

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Event is something that happened. An event only informs: no program decides anything by it.
type Event interface {
	// Describe adds the description of the event to d. It has no other effect.
	Describe(d *EventDescription)
}

// Observer receives events. Observe is called from one goroutine at a time, unless its implementation says otherwise,
// and must not block.
type Observer interface{ Observe(Event) }

// Observers passes each event to every observer that is not nil, in order.
type Observers []Observer

// Observe implements Observer.
func (all Observers) Observe(e Event) {
	for _, o := range all {
		if o != nil {
			o.Observe(e)
		}
	}
}

// LogLevel is the severity of a log record. Its values are those of log/slog.
type LogLevel int

// The levels.
const (
	Debug LogLevel = -4
	Info  LogLevel = 0
	Warn  LogLevel = 4
	Error LogLevel = 8
)

// LogRecord is a line in the log.
type LogRecord struct {
	Level      LogLevel
	Message    string
	Attributes []any // names and values, alternating
}

// MetricOperation says how a sample changes its metric.
type MetricOperation int

// The operations.
const (
	AddOperation     MetricOperation = iota // to a counter
	SetOperation                            // a gauge
	SetNowOperation                         // a gauge, to the present time in Unix seconds
	ClearOperation                          // removes all series of a gauge
	SelectOperation                         // one value of a state set: its series becomes 1, and the others 0
	ObserveOperation                        // one value of a histogram
)

// MetricSample changes a metric.
type MetricSample struct {
	Metric      *Metric
	Operation   MetricOperation
	Value       float64
	LabelValues [3]string // the label values; as many as the metric has labels
}

// OperatorCondition is a state that needs an operator. It lasts until an event resolves it.
type OperatorCondition struct {
	Name            string // unique in a program, such as "storage" or "clone s1"
	Problem         string // what is wrong; empty when the condition is resolved
	Remedy          string // one sentence that names the command or key
	BlocksReadiness bool   // the program is not ready while the condition lasts
}

// StatusValue is a value that a status shows under a name, until another value with that name replaces it.
type StatusValue struct {
	Name  string // unique in a program
	Value any    // plain data that no longer changes: a text, a struct, or a pointer to a struct; nil removes the value
}

// The names of the values that make the status line of a service.
const (
	ConnectionStatus = "connection" // to the broker
	ActivityStatus   = "activity"   // such as "round 7 is open"
)

// EventDescription is what an event says. The zero value is empty.
type EventDescription struct {
	LogRecords    []LogRecord
	MetricSamples []MetricSample
	Conditions    []OperatorCondition
	StatusValues  []StatusValue

	// IsLogLevelEnabled, if set, reports whether the log keeps records of a level.
	IsLogLevelEnabled func(LogLevel) bool

	logAttributeBuffer []any // of all records
}

// IsEmpty reports whether the event says nothing.
func (d *EventDescription) IsEmpty() bool {
	return len(d.LogRecords) == 0 && len(d.MetricSamples) == 0 && len(d.Conditions) == 0 && len(d.StatusValues) == 0
}

// Reset empties d and keeps its memory, so that a reader allocates nothing for the next event.
func (d *EventDescription) Reset() {
	clear(d.logAttributeBuffer) // they may hold what an event refers to
	d.logAttributeBuffer, d.LogRecords, d.MetricSamples, d.Conditions, d.StatusValues = d.logAttributeBuffer[:0],
		d.LogRecords[:0], d.MetricSamples[:0],
		d.Conditions[:0], d.StatusValues[:0]
}

// Log adds a line to the log. The message is a short phrase; attributes are names and values, alternating.
func (d *EventDescription) Log(level LogLevel, message string, attributes ...any) {
	from := len(d.logAttributeBuffer)
	d.logAttributeBuffer = append(d.logAttributeBuffer, attributes...) // so that the caller's slice stays on its stack
	d.LogRecords = append(d.LogRecords, LogRecord{level, message,
		d.logAttributeBuffer[from:len(d.logAttributeBuffer):len(d.logAttributeBuffer)]})
}

// WantsLogLevel reports whether the log keeps records of a level. A frequent event asks before it makes a debug record.
func (d *EventDescription) WantsLogLevel(level LogLevel) bool {
	return d.IsLogLevelEnabled == nil || d.IsLogLevelEnabled(level)
}

// IncCounter adds 1 to a counter.
func (d *EventDescription) IncCounter(m *Metric, labels ...string) {
	d.addMetricSample(m, AddOperation, 1, labels)
}

// AddToCounter adds n ≥ 0 to a counter.
func (d *EventDescription) AddToCounter(m *Metric, n float64, labels ...string) {
	d.addMetricSample(m, AddOperation, n, labels)
}

// SetGauge sets a gauge. An optional gauge loses its series if x is not finite.
func (d *EventDescription) SetGauge(m *Metric, x float64, labels ...string) {
	d.addMetricSample(m, SetOperation, x, labels)
}

// SetBoolGauge sets a gauge to 1 if is, and to 0 otherwise.
func (d *EventDescription) SetBoolGauge(m *Metric, is bool, labels ...string) {
	x := 0.0
	if is {
		x = 1
	}
	d.addMetricSample(m, SetOperation, x, labels)
}

// SetGaugeToNow sets a gauge to the present time, in Unix seconds.
func (d *EventDescription) SetGaugeToNow(m *Metric) { d.addMetricSample(m, SetNowOperation, 0, nil) }

// ClearGauge removes all series of a gauge.
func (d *EventDescription) ClearGauge(m *Metric) { d.addMetricSample(m, ClearOperation, 0, nil) }

// SelectGaugeState sets the series of one value of a state set to 1, and all others to 0. A value that the set does not
// have sets all to 0.
func (d *EventDescription) SelectGaugeState(m *Metric, value string) {
	d.addMetricSample(m, SelectOperation, 1, []string{value})
}

// ObserveHistogram adds a value to a histogram.
func (d *EventDescription) ObserveHistogram(m *Metric, x float64, labels ...string) {
	d.addMetricSample(m, ObserveOperation, x, labels)
}

func (d *EventDescription) addMetricSample(m *Metric, op MetricOperation, x float64, labels []string) {
	s := MetricSample{Metric: m, Operation: op, Value: x}
	copy(s.LabelValues[:], labels)
	d.MetricSamples = append(d.MetricSamples, s)
}

// RaiseCondition begins a condition, or changes its texts. problem says what is wrong, without a full stop. remedy is
// one sentence that names the command or key which helps.
func (d *EventDescription) RaiseCondition(name, problem, remedy string) {
	d.Conditions = append(d.Conditions, OperatorCondition{Name: name, Problem: problem, Remedy: remedy})
}

// RaiseNotReadyCondition is RaiseCondition for a condition with which the program is not ready.
func (d *EventDescription) RaiseNotReadyCondition(name, problem, remedy string) {
	d.Conditions = append(d.Conditions, OperatorCondition{Name: name, Problem: problem, Remedy: remedy,
		BlocksReadiness: true})
}

// ResolveCondition ends a condition, if there is one with that name.
func (d *EventDescription) ResolveCondition(name string) {
	d.Conditions = append(d.Conditions, OperatorCondition{Name: name})
}

// ShowStatusValue shows plain data under a name, until another value with that name replaces it. The value nil removes
// the previous one.
func (d *EventDescription) ShowStatusValue(name string, value any) {
	d.StatusValues = append(d.StatusValues, StatusValue{name, value})
}

// UnixSeconds returns a time as *_timestamp_seconds metrics have it.
func UnixSeconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1e3 }

// RoundToFourDigits returns x with four significant digits, for log records.
func RoundToFourDigits(x float64) float64 {
	if x == 0 || math.IsNaN(x) || math.IsInf(x, 0) {
		return x
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(x))))
	return math.Round(x*scale) / scale
}

// FiniteOrNil returns a pointer to x; nil if x is NaN or infinite, which JSON does not have.
func FiniteOrNil(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}

// MaxJoinedNames is the largest number of names that JoinNames shows.
const MaxJoinedNames = 8

// JoinNames joins the first names with commas, and counts the others.
func JoinNames[S ~string](all []S) string {
	shown := make([]string, 0, MaxJoinedNames)
	for _, name := range all[:min(len(all), MaxJoinedNames)] {
		shown = append(shown, string(name))
	}
	text := strings.Join(shown, ", ")
	switch more := len(all) - len(shown); {
	case more == 1:
		text += " and 1 other"
	case more > 1:
		text += fmt.Sprintf(" and %d others", more)
	}
	return text
}
