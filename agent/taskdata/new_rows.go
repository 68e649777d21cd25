package taskdata

import (
	"math"
	"time"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// newRowsCheckInterval is the interval between checks for new rows while the next round requires them. It also limits
// how often the agent reports new rows.
const newRowsCheckInterval = 5 * time.Minute

// newRowCounter counts the rows that no round of the current run has trained on. After a restart it counts rows as new
// if their use is unknown.
type newRowCounter struct {
	run      wire.RunID
	usedRows trainedRowsEnd // rows that earlier rounds have used
	// rows of the update in the current round, while it is unknown whether the coordinator uses the update
	currentRoundRows trainedRowsEnd
	// time of the next check for new rows; zero if a round has just used rows, so that the check is due at once
	checkAt      time.Time
	lastReported wire.NewRowsReport // report in the last hello message
}

// trainedRowsEnd identifies the last row on which a round has trained.
type trainedRowsEnd struct {
	round         wire.RoundID
	rowCount      int
	newestRowTime int64 // time of the last trained row; 0 if rows have no time
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

// RecordUpdateFate records whether the coordinator has used the agent's update of a round.
func (p *TaskDataLoader) RecordUpdateFate(run wire.RunID, r wire.RoundID, f wire.UpdateFate) {
	p.newRows.recordUpdateFate(run, r, f)
}

// recordUpdateFate marks the rows of a round's update as used, unless the round was abandoned or the update arrived
// after the end of the round. The rows also remain new if an earlier process made the update, or if the next round
// began before the outcome was known.
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

// countNewRows returns the number of training rows that no round of the run has used.
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

// awaitsNewRows reports whether the coordinator delays the next round until agents have new rows.
func (p *TaskDataLoader) awaitsNewRows() bool {
	a := &p.core.LastAnnouncement.Announcement
	return a.MinNewRows > 0 && a.Phase == wire.PhaseIdle && p.core.IsConnected
}

// checkForAwaitedNewRows checks the source for new rows while the next round waits for new rows and the agent has too
// few. If the agent has enough new rows, it reports their number in a hello message, because the end of a round
// invalidates earlier reports.
func (p *TaskDataLoader) checkForAwaitedNewRows(now time.Time) {
	if !p.awaitsNewRows() || now.Before(p.newRows.checkAt) {
		return
	}
	p.newRows.checkAt = now.Add(newRowsCheckInterval)
	least := uint64(p.core.LastAnnouncement.Announcement.MinNewRows)
	switch tooFew := uint64(p.newRows.countNewRows(p.core.ObeyedPosition.Run, p.prepared)) < least; {
	case tooFew && now.Before(p.nextSourceCheckAt): // The source was checked recently.
		p.newRows.checkAt = p.nextSourceCheckAt
	case tooFew:
		p.rereadChangedRows()
	case p.newRowsReport() != p.newRows.lastReported:
		p.core.HandleRoundEvent(agentround.NewRowsAvailable{})
	}
}
