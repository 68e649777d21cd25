// Package observe defines how an event describes itself to operators: by log records, metric samples, conditions and
// status values, all as plain data.
//
// An event is a struct in the file of the feature that emits it. Its Describe method defines everything that operators
// see of the event:
//
//	// CertificateRenewed reports that the agent stored a renewed broker certificate.
//	type CertificateRenewed struct{ Expires time.Time }
//
//	// Describe implements observe.Event.
//	func (e CertificateRenewed) Describe(d *observe.EventDescription) {
//		d.Log(observe.Info, "certificate renewed", "expires", e.Expires)
//		d.SetGauge(certificateExpires, observe.UnixSeconds(e.Expires))
//		d.ResolveCondition("certificate")
//	}
//
// Readers of descriptions depend on no particular event: internal/daemon.EventDispatcher writes the log,
// metrics.EventMetrics keeps the metrics, and internal/status.ConditionBoard keeps the conditions and the status
// values.
package observe

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Event is an occurrence in a program that appears in logs, metrics and status. The logic of a program must not depend
// on events.
type Event interface {
	// Describe adds the description of the event to d. It has no other side effects.
	Describe(d *EventDescription)
}

// Observer receives the events of a program. Observe must not block, and it is not called concurrently unless the
// implementation allows this.
type Observer interface{ Observe(Event) }

// Observers forwards each event to every non-nil observer, in order.
type Observers []Observer

// Observe implements Observer.
func (all Observers) Observe(e Event) {
	for _, o := range all {
		if o != nil {
			o.Observe(e)
		}
	}
}

// LogLevel is the severity of a log record. Its values equal the levels of log/slog.
type LogLevel int

// Severities of log records.
const (
	Debug LogLevel = -4
	Info  LogLevel = 0
	Warn  LogLevel = 4
	Error LogLevel = 8
)

// LogRecord is one record of the program's log.
type LogRecord struct {
	Level      LogLevel
	Message    string
	Attributes []any // names and values of the attributes, alternately
}

// MetricOperation is the kind of change that a MetricSample makes to a metric.
type MetricOperation int

// Kinds of changes to a metric.
const (
	AddOperation     MetricOperation = iota // adds the sample's value to a counter
	SetOperation                            // sets a gauge to the sample's value
	SetNowOperation                         // sets a gauge to the current time, in Unix seconds
	ClearOperation                          // removes all series of a gauge
	SelectOperation                         // sets the gauge series of one state to 1 and all others to 0
	ObserveOperation                        // adds a value to a histogram
)

// MetricSample is one change of a metric.
type MetricSample struct {
	Metric      *Metric
	Operation   MetricOperation
	Value       float64
	LabelValues [3]string // values of the metric's labels, in order; unused elements are empty
}

// OperatorCondition is a problem that requires an operator's attention. It lasts until an event resolves it.
type OperatorCondition struct {
	Name            string // unique name within the program, such as "storage" or "clone s1"
	Problem         string // description of the problem; empty if the condition is resolved
	Remedy          string // one sentence that names the command or configuration key that helps
	BlocksReadiness bool   // true if the program is not ready while the condition persists
}

// StatusValue is a named value in the status of a program. It remains until a value with the same name replaces it.
type StatusValue struct {
	Name  string // name of the value, unique within the program
	Value any    // immutable text, struct or struct pointer; nil removes the value
}

// Names of the values in the status line of a service.
const (
	ConnectionStatus = "connection" // status value that shows the state of the broker connection
	ActivityStatus   = "activity"   // current activity, such as "round 7 is open"
)

// EventDescription contains the log records, metric samples, conditions and status values of an event. The zero value
// is empty.
type EventDescription struct {
	LogRecords    []LogRecord
	MetricSamples []MetricSample
	Conditions    []OperatorCondition
	StatusValues  []StatusValue

	// IsLogLevelEnabled reports whether the log records messages of a level. Nil means that it records all levels.
	IsLogLevelEnabled func(LogLevel) bool

	logAttributeBuffer []any // backing array of the attributes of all records
}

// IsEmpty reports whether the description has no content.
func (d *EventDescription) IsEmpty() bool {
	return len(d.LogRecords) == 0 && len(d.MetricSamples) == 0 && len(d.Conditions) == 0 && len(d.StatusValues) == 0
}

// Reset empties the description but keeps its buffers for reuse.
func (d *EventDescription) Reset() {
	clear(d.logAttributeBuffer) // Clearing allows the garbage collector to free the attributes.
	d.logAttributeBuffer, d.LogRecords, d.MetricSamples, d.Conditions, d.StatusValues = d.logAttributeBuffer[:0],
		d.LogRecords[:0], d.MetricSamples[:0],
		d.Conditions[:0], d.StatusValues[:0]
}

// Log adds a log record. The message is a short phrase, and attributes contains alternating names and values.
func (d *EventDescription) Log(level LogLevel, message string, attributes ...any) {
	from := len(d.logAttributeBuffer)
	// Copy the attributes, so that the caller's slice can stay on the stack.
	d.logAttributeBuffer = append(d.logAttributeBuffer, attributes...)
	d.LogRecords = append(d.LogRecords, LogRecord{level, message,
		d.logAttributeBuffer[from:len(d.logAttributeBuffer):len(d.logAttributeBuffer)]})
}

// WantsLogLevel reports whether the log keeps records of a level. Events that occur frequently should check this before
// they build a debug record.
func (d *EventDescription) WantsLogLevel(level LogLevel) bool {
	return d.IsLogLevelEnabled == nil || d.IsLogLevelEnabled(level)
}

// IncCounter adds 1 to a counter.
func (d *EventDescription) IncCounter(m *Metric, labels ...string) {
	d.addMetricSample(m, AddOperation, 1, labels)
}

// AddToCounter adds n to a counter. The number n must not be negative.
func (d *EventDescription) AddToCounter(m *Metric, n float64, labels ...string) {
	d.addMetricSample(m, AddOperation, n, labels)
}

// SetGauge sets a gauge to x. If x is not finite and the gauge is optional, SetGauge removes the gauge's series.
func (d *EventDescription) SetGauge(m *Metric, x float64, labels ...string) {
	d.addMetricSample(m, SetOperation, x, labels)
}

// SetBoolGauge sets a gauge to 1 if the parameter is is true, and to 0 otherwise.
func (d *EventDescription) SetBoolGauge(m *Metric, is bool, labels ...string) {
	x := 0.0
	if is {
		x = 1
	}
	d.addMetricSample(m, SetOperation, x, labels)
}

// SetGaugeToNow sets a gauge to the current time, in Unix seconds.
func (d *EventDescription) SetGaugeToNow(m *Metric) { d.addMetricSample(m, SetNowOperation, 0, nil) }

// ClearGauge removes all series of a gauge.
func (d *EventDescription) ClearGauge(m *Metric) { d.addMetricSample(m, ClearOperation, 0, nil) }

// SelectGaugeState sets the gauge series of one state to 1 and the series of all other states to 0. An unknown value
// sets all series to 0.
func (d *EventDescription) SelectGaugeState(m *Metric, value string) {
	d.addMetricSample(m, SelectOperation, 1, []string{value})
}

// ObserveHistogram adds the value x to a histogram.
func (d *EventDescription) ObserveHistogram(m *Metric, x float64, labels ...string) {
	d.addMetricSample(m, ObserveOperation, x, labels)
}

func (d *EventDescription) addMetricSample(m *Metric, op MetricOperation, x float64, labels []string) {
	s := MetricSample{Metric: m, Operation: op, Value: x}
	copy(s.LabelValues[:], labels)
	d.MetricSamples = append(d.MetricSamples, s)
}

// RaiseCondition starts a condition or replaces its texts. The text problem is a phrase without a full stop. The text
// remedy is a sentence with the command or the configuration key that helps.
func (d *EventDescription) RaiseCondition(name, problem, remedy string) {
	d.Conditions = append(d.Conditions, OperatorCondition{Name: name, Problem: problem, Remedy: remedy})
}

// RaiseNotReadyCondition is like RaiseCondition, but also marks the program as not ready while the condition persists.
func (d *EventDescription) RaiseNotReadyCondition(name, problem, remedy string) {
	d.Conditions = append(d.Conditions, OperatorCondition{Name: name, Problem: problem, Remedy: remedy,
		BlocksReadiness: true})
}

// ResolveCondition ends the condition with this name. It has no effect if the condition is not active.
func (d *EventDescription) ResolveCondition(name string) {
	d.Conditions = append(d.Conditions, OperatorCondition{Name: name})
}

// ShowStatusValue sets the status value with the given name. If value is nil, it removes the status value.
func (d *EventDescription) ShowStatusValue(name string, value any) {
	d.StatusValues = append(d.StatusValues, StatusValue{name, value})
}

// UnixSeconds returns the time t in seconds since 1970, with a precision of milliseconds, for metrics whose names end
// in _timestamp_seconds.
func UnixSeconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1e3 }

// RoundToFourDigits rounds x to four significant digits, for log records.
func RoundToFourDigits(x float64) float64 {
	if x == 0 || math.IsNaN(x) || math.IsInf(x, 0) {
		return x
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(x))))
	return math.Round(x*scale) / scale
}

// FiniteOrNil returns a pointer to x, or nil if x is NaN or infinite, because JSON cannot represent these values.
func FiniteOrNil(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}

// MaxJoinedNames is the maximum number of names that JoinNames lists.
const MaxJoinedNames = 8

// JoinNames joins the first MaxJoinedNames names with commas and appends the number of remaining names.
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
