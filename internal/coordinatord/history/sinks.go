package history

import (
	"encoding/csv"
	"encoding/json"
	"io"
	"strconv"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/round/evaluation"
	"github.com/fedmesh/fedmesh/wire"
)

// Sink receives rounds and evaluations, from oldest to newest.
type Sink interface {
	WriteRound(e *runs.HistoryEntry) error
	// Close completes the output.
	Close() error
}

// roundMetric is a metric of a round. The value is nil if it was not measured.
type roundMetric struct {
	name  string
	value *float64
}

// roundMetrics returns the metrics of a round or an evaluation for comparing runs.
func roundMetrics(e *runs.HistoryEntry) []roundMetric {
	var seconds, selected, accepted, risk, agents, worstRisk, worstAccuracy *float64
	v := e.Evaluation
	if v == nil {
		s, a := float64(e.SelectedAgents), float64(e.AcceptedUpdates)
		seconds, selected, accepted, v = &e.RoundSeconds, &s, &a, new(evaluation.Result)
	} else {
		n := float64(v.ReportingAgents)
		risk, agents = &v.Risk, &n
	}
	if s := v.AgentRisk; s != nil {
		worstRisk = &s.Worst
	}
	if s := v.AgentAccuracy; s != nil {
		worstAccuracy = &s.Worst
	}
	return []roundMetric{{"risk", e.MeanAgentRisk}, {"held_out_risk", e.HeldOutRisk}, {"r2", e.R2}, {"accuracy",
		e.Accuracy},
		{"seconds", seconds}, {"selected", selected}, {"accepted", accepted},
		{"evaluated_agents", agents}, {"evaluated_risk", risk}, {"evaluated_r2", v.R2},
		{"evaluated_accuracy", v.Accuracy}, {"evaluated_f1", v.MacroF1}, {"evaluated_worst_risk", worstRisk},
		{"evaluated_worst_accuracy", worstAccuracy}}
}

// hasModelMetrics reports whether an entry has metrics of a model. It must be an evaluation or a completed training
// round.
func hasModelMetrics(e *runs.HistoryEntry) bool {
	return e.Evaluation != nil || e.Kind == wire.KindTraining.String() && e.AbandonReason == ""
}

type csvSink struct{ w *csv.Writer }

// NewCSVSink returns a sink that writes a header and one line per round. Values that were not measured are empty.
func NewCSVSink(w io.Writer) (Sink, error) {
	s := csvSink{csv.NewWriter(w)}
	names := []string{"time", "run", "round", "attempt", "kind", "outcome", "reason", "version", "ended"}
	for _, m := range roundMetrics(&runs.HistoryEntry{}) {
		names = append(names, m.name)
	}
	return s, s.w.Write(names)
}

func (s csvSink) WriteRound(e *runs.HistoryEntry) error {
	at := ""
	if !e.Time.IsZero() {
		at = e.Time.UTC().Format(time.RFC3339Nano)
	}
	whole := func(n uint64) string { return strconv.FormatUint(n, 10) }
	line := []string{at, whole(uint64(e.Run)), whole(uint64(e.Round)), whole(uint64(e.Attempt)), e.Kind, e.Outcome,
		e.AbandonReason, whole(uint64(e.Version)), string(e.StopReason)}
	for _, m := range roundMetrics(e) {
		text := ""
		if m.value != nil {
			text = strconv.FormatFloat(*m.value, 'g', -1, 64)
		}
		line = append(line, text)
	}
	return s.w.Write(line)
}

func (s csvSink) Close() error {
	s.w.Flush()
	return s.w.Error()
}

type jsonSink struct {
	w               io.Writer
	hasWrittenEntry bool
}

// NewJSONSink returns a sink that writes the history as a JSON array.
func NewJSONSink(w io.Writer) Sink { return &jsonSink{w: w} }

func (s *jsonSink) WriteRound(e *runs.HistoryEntry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	before := ",\n"
	if !s.hasWrittenEntry {
		before, s.hasWrittenEntry = "[\n", true
	}
	_, err = s.w.Write(append([]byte(before), line...))
	return err
}

func (s *jsonSink) Close() error {
	end := "\n]\n"
	if !s.hasWrittenEntry {
		end = "[]\n"
	}
	_, err := io.WriteString(s.w, end)
	return err
}
