package taskdata

import (
	"math"
	"time"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// newRowsCheckInterval is the interval between checks for new rows while the next round waits for them. It also limits
// the hellos that report new rows.
const newRowsCheckInterval = 5 * time.Minute

// newRowCounter counts the rows that no round of the run has used. After a restart it does not know which rows were
// used.
type newRowCounter struct {
	run              wire.RunID
	usedRows         trainedRowsEnd     // rows that the model includes
	currentRoundRows trainedRowsEnd     // rows of the current round, or of a round with unknown outcome
	checkAt          time.Time          // time of the next check; zero once a round has used rows
	lastReported     wire.NewRowsReport // report in the last hello
}

// trainedRowsEnd is the end of the rows on which a round has trained.
type trainedRowsEnd struct {
	round         wire.RoundID
	rowCount      int
	newestRowTime int64 // time of the last row; 0 if rows have no time
}

// RecordTrainingStart records the rows on which a round trains.
func (p *TaskDataLoader) RecordTrainingStart(run wire.RunID, r wire.RoundID, t *part.PreparedTask) {
	n := &p.newRows
	if n.run != run {
		n.run, n.usedRows = run, trainedRowsEnd{}
	}
	n.currentRoundRows = trainedRowsEnd{round: r, rowCount: t.TrainingRows.Len()}
	if t.View.Times != nil && n.currentRoundRows.rowCount > 0 {
		n.currentRoundRows.newestRowTime = t.View.Times.At(n.currentRoundRows.rowCount - 1)
	}
	n.checkAt = time.Time{}
}

// RecordUpdateFate records the fate of a round's update.
func (p *TaskDataLoader) RecordUpdateFate(run wire.RunID, r wire.RoundID, f wire.UpdateFate) {
	p.newRows.recordUpdateFate(run, r, f)
}

// recordUpdateFate records the fate of a round's update. The rows of an update are unknown and count as new in two
// cases: an earlier process made it, or the next round began before its fate was known.
func (n *newRowCounter) recordUpdateFate(run wire.RunID, r wire.RoundID, f wire.UpdateFate) {
	if f == wire.FateRoundAbandoned || f == wire.FateMissedRoundEnd {
		return
	}
	if n.run != run {
		n.run, n.usedRows = run, trainedRowsEnd{}
	}
	if n.currentRoundRows.round == r {
		n.usedRows = n.currentRoundRows
	}
	n.usedRows.round = max(n.usedRows.round, r)
	n.checkAt = time.Time{}
}

// resetIfRowsReplaced counts all rows as new if earlier rows were replaced and rows have no times.
func (n *newRowCounter) resetIfRowsReplaced(v data.RowSnapshot) {
	if v.ReplacementReason != "" && v.Times == nil {
		n.usedRows.rowCount, n.currentRoundRows.rowCount = 0, 0
	}
}

// countNewRows returns the number of training rows that are new in a run.
func (n *newRowCounter) countNewRows(run wire.RunID, p *part.PreparedTask) int {
	if p == nil {
		return 0
	}
	all, used := p.TrainingRows.Len(), trainedRowsEnd{}
	if n.run == run {
		used = n.usedRows
	}
	if p.View.Times != nil && used.newestRowTime != 0 {
		used.rowCount = p.View.Times.FirstRowSince(used.newestRowTime + 1)
	}
	return max(0, all-used.rowCount)
}

// newRowsReport returns the report of new rows for the next hello.
func (p *TaskDataLoader) newRowsReport() wire.NewRowsReport {
	if p.core.LastAnnouncement.Announcement.MinNewRows == 0 {
		return wire.NewRowsReport{}
	}
	run := p.core.ObeyedPosition.Run
	n := wire.NewRowsReport{IsKnown: true,
		UnusedRows: uint32(min(uint64(p.newRows.countNewRows(run, p.prepared)), math.MaxUint32))}
	if p.newRows.run == run {
		n.LastUsedRound = p.newRows.usedRows.round
	}
	return n
}

// awaitsNewRows reports whether the next round waits for new rows.
func (p *TaskDataLoader) awaitsNewRows() bool {
	a := &p.core.LastAnnouncement.Announcement
	return a.MinNewRows > 0 && a.Phase == wire.PhaseIdle && p.core.IsConnected
}

// checkForAwaitedNewRows checks the source while the next round waits for new rows and the agent has too few. If it has
// enough, it sends a hello with the new number, because the end of a round voids earlier reports.
func (p *TaskDataLoader) checkForAwaitedNewRows(now time.Time) {
	if !p.awaitsNewRows() || now.Before(p.newRows.checkAt) {
		return
	}
	p.newRows.checkAt = now.Add(newRowsCheckInterval)
	least := uint64(p.core.LastAnnouncement.Announcement.MinNewRows)
	switch tooFew := uint64(p.newRows.countNewRows(p.core.ObeyedPosition.Run, p.prepared)) < least; {
	case tooFew && now.Before(p.nextSourceCheckAt): // the source was checked recently
		p.newRows.checkAt = p.nextSourceCheckAt
	case tooFew:
		p.rereadChangedRows()
	case p.newRowsReport() != p.newRows.lastReported:
		p.core.HandleRoundEvent(agentround.NewRowsAvailable{})
	}
}
