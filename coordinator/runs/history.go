package runs

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/audit"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/evaluation"
	"github.com/fedmesh/fedmesh/round/stop"
	"github.com/fedmesh/fedmesh/wire"
)

// historyFile is the name of the history in the state folder.
const historyFile = "history.jsonl"

// KindEvaluation is the kind of a history line that contains an evaluation instead of a round.
const KindEvaluation = "evaluation"

// HistoryEntry is a line of the history. It describes a finished round or an evaluation.
type HistoryEntry struct {
	Time            time.Time         `json:"time,omitzero"`
	Run             wire.RunID        `json:"run,omitzero"`
	Round           wire.RoundID      `json:"round"`
	Attempt         wire.RoundAttempt `json:"attempt,omitzero"`
	Kind            string            `json:"kind"`
	Outcome         string            `json:"outcome,omitempty"`
	AbandonReason   string            `json:"reason,omitempty"` // reason for abandoning the round; empty otherwise
	Version         wire.ModelVersion `json:"version"`
	SelectedAgents  int               `json:"selected"`
	AcceptedUpdates int               `json:"accepted"`
	RoundSeconds    float64           `json:"seconds"`
	MeanAgentRisk   *float64          `json:"risk,omitempty"`
	R2              *float64          `json:"r2,omitempty"`
	Accuracy        *float64          `json:"accuracy,omitempty"`
	HeldOutRisk     *float64          `json:"held_out_risk,omitempty"`
	// Evaluation is the evaluation of model Version. It is set only in lines of KindEvaluation.
	Evaluation *evaluation.Result `json:"evaluation,omitempty"`
	// StopReason is the reason why the run ended with this round; empty if the run continued.
	StopReason stop.Reason      `json:"ended,omitempty"`
	AuditHead  *audit.ChainHead `json:"audit,omitempty"` // head of the audit log at the end of the round
}

// ReadHistory yields the lines of the history in a state folder, oldest first. The coordinator may be running. An
// invalid line yields an error, and iteration continues with the next line.
func ReadHistory(dir string) iter.Seq2[HistoryEntry, error] {
	var begin int64
	return ReadHistoryFromOffset(dir, &begin)
}

// ReadHistoryFromOffset yields the lines of the history from byte offset *at, which must be the start of a line. It
// advances *at past each line, so that the next call continues there.
func ReadHistoryFromOffset(dir string, at *int64) iter.Seq2[HistoryEntry, error] {
	return func(yield func(HistoryEntry, error) bool) {
		path := filepath.Join(dir, historyFile)
		f, err := os.Open(path)
		if err == nil {
			defer f.Close()
			_, err = f.Seek(*at, io.SeekStart)
		}
		if err != nil {
			yield(HistoryEntry{}, err)
			return
		}
		lines := bufio.NewReader(f)
		for n := 1; ; n++ {
			line, err := lines.ReadBytes('\n')
			if errors.Is(err, io.EOF) { // Ignore an incomplete last line, which is still being written.
				return
			}
			*at += int64(len(line))
			var h HistoryEntry
			if err == nil {
				err = json.Unmarshal(line, &h)
			}
			if err != nil {
				err = fmt.Errorf("%s:%d: %w", path, n, err)
			}
			if !yield(h, err) {
				return
			}
		}
	}
}

const (
	outcomeClosed    = "closed"
	outcomeAbandoned = "abandoned"
)

func historyEntryOfRound(e round.WriteHistory) HistoryEntry {
	o := &e.Outcome
	h := HistoryEntry{
		Time: o.EndedAt, Run: e.Run, Round: o.Round, Attempt: o.Attempt, Kind: o.Kind.String(), Outcome: outcomeClosed,
		Version:        o.ModelVersionAfter,
		SelectedAgents: o.SelectedAgents, AcceptedUpdates: o.AcceptedUpdates, RoundSeconds: o.RoundDuration.Seconds(),
		MeanAgentRisk: o.Measurements.MeanAgentRisk,
		R2:            o.Measurements.R2,
		Accuracy:      o.Measurements.Accuracy, HeldOutRisk: o.Measurements.HeldOutRisk, StopReason: e.StopReason,
	}
	if o.AbandonReason != "" {
		h.Outcome, h.AbandonReason = outcomeAbandoned, string(o.AbandonReason)
	}
	return h
}

// AppendRoundToHistory appends the line of a finished round unless the history already contains it. After a restart,
// the journal may request the last line again, so the first call of a process searches for the line. The end time
// distinguishes rounds with the same number after an older state folder was restored.
func (d *StateFolder) AppendRoundToHistory(e round.WriteHistory) error {
	if d.historyChecked || !d.historyHasRound(e) {
		line := historyEntryOfRound(e)
		if d.Audit != nil {
			line.AuditHead = d.Audit.SignHead(e.Run, e.Outcome.Round)
		}
		if err := d.history.Append(line); err != nil {
			return err
		}
	}
	d.historyChecked = true
	return nil
}

// historyHasRound reports whether the history contains the line of a round. It stops at a damaged line.
func (d *StateFolder) historyHasRound(e round.WriteHistory) bool {
	o := &e.Outcome
	for line, err := range d.Disk.NewestHistoryLines(filepath.Join(d.Dir, historyFile)) {
		var h HistoryEntry
		if err != nil || json.Unmarshal(line, &h) != nil || h.Run != e.Run || h.Round < o.Round {
			break
		}
		if h.Round == o.Round && h.Kind != KindEvaluation && h.Time.Equal(o.EndedAt) && h.StopReason == e.StopReason {
			return true
		}
	}
	return false
}

// EarlierRunSummary summarises the part of the run before this process started.
type EarlierRunSummary struct {
	Version        wire.ModelVersion // version of the newest model; 0 before the first training round
	MeanAgentRisks []float64         // mean risks of the newest training rounds, oldest first
	R2, Accuracy   *float64          // scores of the newest model on held-out data; nil if not measured
}

// pastLines is the maximum number of lines that SummarizeRun reads. The limit applies if many consecutive rounds were
// abandoned.
const pastLines = 10_000

// SummarizeRun summarises the history lines of the models of a run, newest first. It skips a line whose model version
// is not lower than the version in the line read before: such a line was written before an older state folder was
// restored. The argument most limits the number of risk values.
func (d *StateFolder) SummarizeRun(rec round.JournalRecord, most int) (p EarlierRunSummary, err error) {
	if p.Version = rec.Plan.BaseModelVersion; p.Version == 0 {
		return p, nil
	}
	defer func() { slices.Reverse(p.MeanAgentRisks) }()
	last, told := p.Version+1, false // version of the last line that was used, and whether that line contained a risk
	take := func(h HistoryEntry) {
		if h.Version == p.Version {
			p.R2, p.Accuracy = h.R2, h.Accuracy
		}
		if last, told = h.Version, h.MeanAgentRisk != nil; told {
			p.MeanAgentRisks = append(p.MeanAgentRisks, *h.MeanAgentRisk)
		}
	}
	// Use the record, because the line of the last round may not be written yet.
	if o := rec.LastOutcome; o != nil && o.AbandonReason == "" && o.Kind == wire.KindTraining {
		take(historyEntryOfRound(round.WriteHistory{Run: rec.Run, Outcome: *o}))
	}
	read := 0
	for line, err := range d.Disk.NewestHistoryLines(filepath.Join(d.Dir, historyFile)) {
		var h HistoryEntry
		if err == nil {
			err = json.Unmarshal(line, &h)
		}
		if err != nil {
			return p, fmt.Errorf("%s: %w", historyFile, err)
		}
		switch {
		case len(p.MeanAgentRisks) == most, read == pastLines, h.Run != rec.Run:
			return p, nil // enough lines, or a line of another run
		case h.Kind == wire.KindTraining.String() && h.Outcome != outcomeAbandoned && h.Version < last:
			take(h)
		}
		read++
	}
	return p, nil
}

// ReadAuditHeads yields the audit log heads (number and hash of the newest entry) in the history of a state folder,
// oldest first. It yields nil for a round without a head.
func ReadAuditHeads(dir string) iter.Seq2[*audit.SignedHead, error] {
	return func(yield func(*audit.SignedHead, error) bool) {
		for h, err := range ReadHistory(dir) {
			var signed *audit.SignedHead
			if err == nil && h.AuditHead != nil {
				signed = &audit.SignedHead{Run: h.Run, Round: h.Round, Head: *h.AuditHead}
			}
			if errors.Is(err, fs.ErrNotExist) { // no round has ended yet
				return
			}
			if !yield(signed, err) {
				return
			}
		}
	}
}

// AppendEvaluationToHistory appends the line of an evaluation, unless the history already has an evaluation of the
// model. A coordinator that was killed may have repeated the request.
func (d *StateFolder) AppendEvaluationToHistory(line HistoryEntry) error {
	for text, err := range d.Disk.NewestHistoryLines(filepath.Join(d.Dir, historyFile)) {
		var h HistoryEntry
		if err != nil || json.Unmarshal(text, &h) != nil || h.Run != line.Run || h.Version < line.Version {
			break
		}
		if h.Kind == KindEvaluation && h.Version == line.Version {
			return nil
		}
	}
	return d.history.Append(line)
}
