package runs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/stop"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

func recordAt(run wire.RunID, version wire.ModelVersion) round.JournalRecord {
	return round.JournalRecord{Run: run, Plan: round.Plan{BaseModelVersion: version}}
}

// TestPast checks that SummarizeRun summarises only the newest rounds, and only rounds of the run in the state folder.
func TestPast(t *testing.T) {
	const now = `{"run":6,"round":9,"kind":"training","outcome":"closed","version":4,"risk":8}
{"run":7,"round":1,"kind":"statistics","outcome":"closed","version":0}
{"run":7,"round":2,"kind":"training","outcome":"closed","version":1,"risk":3}
{"run":7,"round":3,"kind":"training","outcome":"abandoned","reason":"quorum","version":1}
{"run":7,"round":4,"kind":"training","outcome":"closed","version":2,"risk":2,"r2":0.5}
{"run":7,"round":5,"kind":"training","outcome":"closed","version":3,"risk":1,"r2":0.7}
`
	for _, tt := range []struct {
		name, lines string
		rec         round.JournalRecord
		most        int
		risks       []float64
		r2          float64
	}{
		{"nothing", "", recordAt(7, 0), 2, nil, 0},
		{"cut short", now + `{"run":7,"round":6,"kind":"trai`, recordAt(7, 3), 2, []float64{2, 1}, 0.7},
		{"all of the run", now, recordAt(7, 3), 9, []float64{3, 2, 1}, 0.7},
		{"the newest", now, recordAt(7, 3), 2, []float64{2, 1}, 0.7},
		{"a new run", now, recordAt(8, 0), 9, nil, 0},
		{"an older place was put back", now, recordAt(7, 2), 9, []float64{3, 2}, 0.5},
		{"and went on from there", now +
			`{"run":7,"round":5,"kind":"training","outcome":"closed","version":3,"risk":5}`, recordAt(7, 3), 9,
			[]float64{3, 2, 5}, 0},
	} {
		d := &StateFolder{Disk: store.LocalDisk, Dir: t.TempDir()}
		if err := os.WriteFile(filepath.Join(d.Dir, historyFile), []byte(strings.TrimSuffix(tt.lines, "\n")+"\n"),
			0o600); tt.lines != "" && err != nil {
			t.Fatal(err)
		}
		if tt.lines == "" || strings.HasSuffix(tt.lines, "trai") {
			if err := os.WriteFile(filepath.Join(d.Dir, historyFile), []byte(tt.lines), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		p, err := d.SummarizeRun(tt.rec, tt.most)
		if err != nil || p.Version != tt.rec.Plan.BaseModelVersion || !slices.Equal(p.MeanAgentRisks, tt.risks) ||
			(p.R2 == nil) != (tt.r2 == 0) || p.R2 != nil && *p.R2 != tt.r2 {
			t.Errorf("%s: got %+v, error %v", tt.name, p, err)
		}
	}
	d := &StateFolder{Disk: store.LocalDisk, Dir: t.TempDir()}
	if p, err := d.SummarizeRun(recordAt(7, 3), 2); err != nil || p.Version != 3 || p.MeanAgentRisks != nil {
		t.Errorf("without a history: %+v, error %v", p, err)
	}
	if err := os.WriteFile(filepath.Join(d.Dir, historyFile), []byte("nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.SummarizeRun(recordAt(7, 3), 2); err == nil {
		t.Error("nonsense is read")
	}
}

// TestPastKnowsTheJournal checks that the last outcome in the journal is included if its history line is missing after
// a kill.
func TestPastKnowsTheJournal(t *testing.T) {
	risk, r2 := 4.0, 0.25
	rec := recordAt(7, 3)
	rec.LastOutcome = &round.RoundOutcome{Round: 5, Kind: wire.KindTraining, ModelVersionAfter: 3,
		Measurements: round.RoundMeasurements{MeanAgentRisk: &risk, R2: &r2}}
	d := &StateFolder{Disk: store.LocalDisk, Dir: t.TempDir()}
	if p, err := d.SummarizeRun(rec, 9); err != nil || !slices.Equal(p.MeanAgentRisks, []float64{4}) || p.R2 == nil ||
		*p.R2 != r2 {
		t.Errorf("got %+v, error %v", p, err)
	}
}

// TestHistoryLineIsWrittenOnce checks that the line of a round is written once although each process requests it. A
// round that is repeated after an older state folder was restored gets a line of its own.
func TestHistoryLineIsWrittenOnce(t *testing.T) {
	dir := t.TempDir()
	at := time.UnixMilli(1_000).UTC()
	ended := stop.Reason("")
	write := func(run wire.RunID, r wire.RoundID, later time.Duration) {
		t.Helper()
		o := round.RoundOutcome{Round: r, Attempt: 2, Kind: wire.KindTraining, AbandonReason: round.AbandonQuorumMissed,
			EndedAt: at.Add(later), RoundDuration: 1500 * time.Millisecond}
		for range 2 {
			d, err := OpenStateFolder(store.LocalDisk, dir)
			if err == nil {
				err = errors.Join(d.AppendRoundToHistory(round.WriteHistory{Run: run, Outcome: o, StopReason: ended}),
					d.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	write(7, 1, 0)
	write(7, 2, 1)
	write(7, 3, 2)
	write(7, 1, 0) // this round is repeated after an older state folder was restored
	write(7, 2, time.Second)
	write(8, 1, time.Minute)
	ended = stop.TimeLimitReached // the run ended between two rounds
	write(8, 1, time.Minute)
	var got []string
	for line, err := range store.LocalDisk.NewestHistoryLines(filepath.Join(dir, historyFile)) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(line))
	}
	if len(got) != 6 {
		t.Errorf("lines, newest first:\n%s\nwant rounds 1 and 1 of run 8, and 2, 3, 2, 1 of run 7",
			strings.Join(got, "\n"))
	}
	want := `{"time":"1970-01-01T00:01:01Z","run":8,"round":1,"attempt":2,"kind":"training","outcome":"abandoned","reason":"quorum","version":0,"selected":0,"accepted":0,"seconds":1.5,"ended":"time"}`
	if got[0] != want {
		t.Errorf("line %s\nwant %s", got[0], want)
	}
}
