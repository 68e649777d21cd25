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
//	func (e CertificateRenewed) Describe(d *observe.Description) {
//		d.Log(observe.Info, "certificate renewed", "expires", e.Expires)
//		d.Set(certificateExpires, observe.UnixSeconds(e.Expires))
//		d.Resolve("certificate")
//	}
//
// Readers of descriptions know no event: internal/daemon.EventReader writes the log, metrics.EventMetrics keeps the
// metrics, and internal/status.Board keeps the conditions.
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
	Describe(d *Description)
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

// Level is the severity of a log record. Its values are those of log/slog.
type Level int

// The levels.
const (
	Debug Level = -4
	Info  Level = 0
	Warn  Level = 4
	Error Level = 8
)

// Record is a line in the log.
type Record struct {
	Level      Level
	Message    string
	Attributes []any // names and values, alternating
}

// Operation says how a sample changes its metric.
type Operation int

// The operations.
const (
	Add     Operation = iota // to a counter
	Set                      // a gauge
	SetNow                   // a gauge, to the present time in Unix seconds
	Clear                    // removes all series of a gauge
	Select                   // one value of a state set: its series becomes 1, and the others 0
	Observe                  // one value of a histogram
)

// Sample changes a metric.
type Sample struct {
	Metric    *Metric
	Operation Operation
	Value     float64
	Labels    [3]string // the label values; as many as the metric has labels
}

// Condition is a state that needs an operator. It lasts until an event resolves it.
type Condition struct {
	Name     string // unique in a program, such as "storage" or "clone s1"
	Problem  string // what is wrong; empty when the condition is resolved
	Remedy   string // one sentence that names the command or key
	NotReady bool   // the program is not ready while the condition lasts
}

// Shown is a value that a status shows under a name, until another value with that name replaces it.
type Shown struct {
	Name  string
	Value string
}

// The names of the values that make the status line of a service.
const (
	Connection = "connection" // to the broker
	Activity   = "activity"   // such as "round 7 is open"
)

// Description is what an event says. The zero value is empty.
type Description struct {
	Records    []Record
	Samples    []Sample
	Conditions []Condition
	Shown      []Shown

	// LogEnabled, if set, reports whether the log keeps records of a level.
	LogEnabled func(Level) bool

	attributes []any // of all records
}

// Empty reports whether the event says nothing.
func (d *Description) Empty() bool {
	return len(d.Records) == 0 && len(d.Samples) == 0 && len(d.Conditions) == 0 && len(d.Shown) == 0
}

// Reset empties d and keeps its memory, so that a reader allocates nothing for the next event.
func (d *Description) Reset() {
	clear(d.attributes) // they may hold what an event refers to
	d.attributes, d.Records, d.Samples, d.Conditions, d.Shown = d.attributes[:0], d.Records[:0], d.Samples[:0],
		d.Conditions[:0], d.Shown[:0]
}

// Log adds a line to the log. The message is a short phrase; attributes are names and values, alternating.
func (d *Description) Log(level Level, message string, attributes ...any) {
	from := len(d.attributes)
	d.attributes = append(d.attributes, attributes...) // so that the caller's slice stays on its stack
	d.Records = append(d.Records, Record{level, message, d.attributes[from:len(d.attributes):len(d.attributes)]})
}

// Wants reports whether the log keeps records of a level. A frequent event asks before it makes a debug record.
func (d *Description) Wants(level Level) bool { return d.LogEnabled == nil || d.LogEnabled(level) }

// Inc adds 1 to a counter.
func (d *Description) Inc(m *Metric, labels ...string) { d.sample(m, Add, 1, labels) }

// Add adds n ≥ 0 to a counter.
func (d *Description) Add(m *Metric, n float64, labels ...string) { d.sample(m, Add, n, labels) }

// Set sets a gauge. An optional gauge loses its series if x is not finite.
func (d *Description) Set(m *Metric, x float64, labels ...string) { d.sample(m, Set, x, labels) }

// SetBool sets a gauge to 1 if is, and to 0 otherwise.
func (d *Description) SetBool(m *Metric, is bool, labels ...string) {
	x := 0.0
	if is {
		x = 1
	}
	d.sample(m, Set, x, labels)
}

// SetNow sets a gauge to the present time, in Unix seconds.
func (d *Description) SetNow(m *Metric) { d.sample(m, SetNow, 0, nil) }

// Clear removes all series of a gauge.
func (d *Description) Clear(m *Metric) { d.sample(m, Clear, 0, nil) }

// Select sets the series of one value of a state set to 1, and all others to 0. A value that the set does not have sets
// all to 0.
func (d *Description) Select(m *Metric, value string) { d.sample(m, Select, 1, []string{value}) }

// Observe adds a value to a histogram.
func (d *Description) Observe(m *Metric, x float64, labels ...string) {
	d.sample(m, Observe, x, labels)
}

func (d *Description) sample(m *Metric, op Operation, x float64, labels []string) {
	s := Sample{Metric: m, Operation: op, Value: x}
	copy(s.Labels[:], labels)
	d.Samples = append(d.Samples, s)
}

// Fail begins a condition, or changes its texts. problem says what is wrong, without a full stop. remedy is one
// sentence that names the command or key which helps.
func (d *Description) Fail(name, problem, remedy string) {
	d.Conditions = append(d.Conditions, Condition{Name: name, Problem: problem, Remedy: remedy})
}

// FailReadiness is Fail for a condition with which the program is not ready.
func (d *Description) FailReadiness(name, problem, remedy string) {
	d.Conditions = append(d.Conditions, Condition{Name: name, Problem: problem, Remedy: remedy, NotReady: true})
}

// Resolve ends a condition, if there is one with that name.
func (d *Description) Resolve(name string) {
	d.Conditions = append(d.Conditions, Condition{Name: name})
}

// Show shows a value until another one with that name replaces it.
func (d *Description) Show(name, value string) { d.Shown = append(d.Shown, Shown{name, value}) }

// UnixSeconds returns a time as *_timestamp_seconds metrics have it.
func UnixSeconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1e3 }

// Rounded returns x with four significant digits, for log records.
func Rounded(x float64) float64 {
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
