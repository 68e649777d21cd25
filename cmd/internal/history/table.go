package history

import (
	"encoding/csv"
	"encoding/json"
	"io"
	"strconv"
	"time"

	"github.com/fedmesh/fedmesh/coordinator"
)

// Sink takes the rounds, the oldest first.
type Sink interface {
	Round(e *coordinator.HistoryEntry) error
	// Close ends what was written.
	Close() error
}

// metric is a number of a round; nil if it was not measured.
type metric struct {
	name  string
	value *float64
}

// metrics are the numbers of a round by which runs are compared.
func metrics(e *coordinator.HistoryEntry) []metric {
	accepted, selected := float64(e.Accepted), float64(e.Selected)
	return []metric{{"risk", e.Risk}, {"held_out_risk", e.HeldOut}, {"r2", e.R2}, {"accuracy", e.Accuracy},
		{"seconds", &e.Seconds}, {"selected", &selected}, {"accepted", &accepted}}
}

type csvSink struct{ w *csv.Writer }

// CSV writes a line a round, after a line with names. What was not measured is empty.
func CSV(w io.Writer) (Sink, error) {
	s := csvSink{csv.NewWriter(w)}
	return s, s.w.Write([]string{"time", "run", "round", "attempt", "kind", "outcome", "reason", "version", "ended",
		"risk", "held_out_risk", "r2", "accuracy", "seconds", "selected", "accepted"})
}

func (s csvSink) Round(e *coordinator.HistoryEntry) error {
	at := ""
	if !e.Time.IsZero() {
		at = e.Time.UTC().Format(time.RFC3339Nano)
	}
	whole := func(n uint64) string { return strconv.FormatUint(n, 10) }
	line := []string{at, whole(uint64(e.Run)), whole(uint64(e.Round)), whole(uint64(e.Attempt)), e.Kind, e.Outcome,
		e.Reason, whole(uint64(e.Version)), string(e.Ended)}
	for _, m := range metrics(e) {
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
	w     io.Writer
	began bool
}

// JSON writes an array of the history's lines.
func JSON(w io.Writer) Sink { return &jsonSink{w: w} }

func (s *jsonSink) Round(e *coordinator.HistoryEntry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	before := ",\n"
	if !s.began {
		before, s.began = "[\n", true
	}
	_, err = s.w.Write(append([]byte(before), line...))
	return err
}

func (s *jsonSink) Close() error {
	end := "\n]\n"
	if !s.began {
		end = "[]\n"
	}
	_, err := io.WriteString(s.w, end)
	return err
}
