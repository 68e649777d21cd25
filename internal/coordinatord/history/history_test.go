package history

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/round/evaluation"
	"github.com/fedmesh/fedmesh/round/stop"
)

// rounds returns a statistics round, an abandoned round and two training rounds. The first entry has no time, run,
// attempt or outcome.
func rounds() []runs.HistoryEntry {
	at := func(s int) time.Time { return time.Date(2026, 3, 1, 12, 0, s, 5e8, time.UTC) }
	x := func(v float64) *float64 { return &v }
	return []runs.HistoryEntry{
		{Round: 1, Kind: "training", Version: 1, SelectedAgents: 2, AcceptedUpdates: 2, RoundSeconds: 1,
			MeanAgentRisk: x(3)},
		{Time: at(1), Run: 7, Round: 1, Attempt: 1, Kind: "statistics", Outcome: "closed", SelectedAgents: 3,
			AcceptedUpdates: 3},
		{Time: at(2), Run: 7, Round: 2, Attempt: 1, Kind: "training", Outcome: "abandoned", AbandonReason: "quorum",
			SelectedAgents: 3, RoundSeconds: 20},
		{Time: at(3), Run: 7, Round: 3, Attempt: 2, Kind: "training", Outcome: "closed", Version: 1, SelectedAgents: 3,
			AcceptedUpdates: 2, RoundSeconds: 0.25, MeanAgentRisk: x(2.5), HeldOutRisk: x(2.25), R2: x(0.5)},
		{Time: at(4), Run: 7, Round: 4, Attempt: 1, Kind: "training", Outcome: "closed", Version: 300,
			SelectedAgents:  3,
			AcceptedUpdates: 3, RoundSeconds: 0.5, MeanAgentRisk: x(1.5), HeldOutRisk: x(1.125), R2: x(0.75),
			StopReason: stop.PatienceExhausted},
		{Time: at(5), Run: 7, Round: 4, Kind: runs.KindEvaluation, Version: 300, Evaluation: &evaluation.Result{
			ReportingAgents: 6, Rows: 60, Risk: 1.25, R2: x(0.625),
			AgentRisk: &evaluation.AgentMetricDistribution{Worst: 4}}},
	}
}

func write(t *testing.T, s Sink, all []runs.HistoryEntry) {
	t.Helper()
	for i := range all {
		if err := s.WriteRound(&all[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestCSV(t *testing.T) {
	var b bytes.Buffer
	s, err := NewCSVSink(&b)
	if err != nil {
		t.Fatal(err)
	}
	write(t, s, rounds())
	const want = `time,run,round,attempt,kind,outcome,reason,version,ended,risk,held_out_risk,r2,accuracy,seconds,selected,accepted,evaluated_agents,evaluated_risk,evaluated_r2,evaluated_accuracy,evaluated_f1,evaluated_worst_risk,evaluated_worst_accuracy
,0,1,0,training,,,1,,3,,,,1,2,2,,,,,,,
2026-03-01T12:00:01.5Z,7,1,1,statistics,closed,,0,,,,,,0,3,3,,,,,,,
2026-03-01T12:00:02.5Z,7,2,1,training,abandoned,quorum,0,,,,,,20,3,0,,,,,,,
2026-03-01T12:00:03.5Z,7,3,2,training,closed,,1,,2.5,2.25,0.5,,0.25,3,2,,,,,,,
2026-03-01T12:00:04.5Z,7,4,1,training,closed,,300,patience,1.5,1.125,0.75,,0.5,3,3,,,,,,,
2026-03-01T12:00:05.5Z,7,4,0,evaluation,,,300,,,,,,,,,6,1.25,0.625,,,4,
`
	if b.String() != want {
		t.Errorf("got\n%s", b.String())
	}
}

// TestJSON checks that the output equals the history entries, also for an empty history.
func TestJSON(t *testing.T) {
	for _, all := range [][]runs.HistoryEntry{rounds(), nil} {
		var b bytes.Buffer
		write(t, NewJSONSink(&b), all)
		var got []runs.HistoryEntry
		if err := json.Unmarshal(b.Bytes(), &got); err != nil || len(got) != len(all) {
			t.Fatalf("%v: %s", err, b.String())
		}
		if len(got) == 0 {
			continue
		}
		if e := got[4]; e.StopReason != stop.PatienceExhausted || *e.R2 != 0.75 || !e.Time.Equal(rounds()[4].Time) {
			t.Errorf("got %+v", e)
		}
	}
}

// TestTensorBoard checks the records of an event file. TensorBoard itself reads one in the nightly test.
func TestTensorBoard(t *testing.T) {
	dir := t.TempDir()
	write(t, NewTensorBoardSink(dir), rounds())
	text, err := os.ReadFile(filepath.Join(dir, "run-7", "events.out.tfevents.7"))
	if err != nil {
		t.Fatal(err)
	}
	// length 24 and its CRC; wall_time, file_version "brain.Event:2" and the CRC of both
	if !bytes.HasPrefix(text, []byte{24, 0, 0, 0, 0, 0, 0, 0, 0xa3, 0x7f, 0x4b, 0x22, 9}) ||
		!bytes.Contains(text, []byte("\x1a\rbrain.Event:2")) || bytes.Count(text, []byte("held_out_risk")) != 2 {
		t.Errorf("% x", text)
	}
	if _, err := os.Stat(filepath.Join(dir, "run-0", "events.out.tfevents.0")); err != nil {
		t.Error(err)
	}
}
