package taskdata

import (
	"math"
	"time"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// newRowsCheckInterval is the time between two checks for new rows while the next round waits for new rows and the
// agent has too few. It also limits the hellos that report new rows.
const newRowsCheckInterval = 5 * time.Minute

// newRowCounter counts the rows that no round of the run has used. A process that has just started does not know of any
// that were used.
type newRowCounter struct {
	run              wire.RunID
	usedRows         rowMark            // the rows that are in the model
	currentRoundRows rowMark            // rows of the round under way, or of a round whose outcome is unknown
	checkAt          time.Time          // of the next check; zero once a round has used rows
	lastReported     wire.NewRowsReport // in the last hello
}

// rowMark is the end of the rows that a round has trained on.
type rowMark struct {
	round  wire.RoundID
	rows   int
	newest int64 // time of the last row; 0 if rows have no time
}

// TrainingStarted notes that a round trains on the rows of a task.
func (p *Part) TrainingStarted(run wire.RunID, r wire.RoundID, t *part.PreparedTask) {
	n := &p.newRows
	if n.run != run {
		n.run, n.usedRows = run, rowMark{}
	}
	n.currentRoundRows = rowMark{round: r, rows: t.TrainingRows.Len()}
	if t.View.Times != nil && n.currentRoundRows.rows > 0 {
		n.currentRoundRows.newest = t.View.Times.At(n.currentRoundRows.rows - 1)
	}
	n.checkAt = time.Time{}
}

// UpdateSettled notes the fate of a round's update.
func (p *Part) UpdateSettled(run wire.RunID, r wire.RoundID, f wire.UpdateFate) {
	p.newRows.settle(run, r, f)
}

// settle notes the fate of a round's update. The rows of an update are unknown, and count as new, if an earlier process
// made it or if the next round began before its fate was known.
func (n *newRowCounter) settle(run wire.RunID, r wire.RoundID, f wire.UpdateFate) {
	if f == wire.FateAbandoned || f == wire.FateMissed {
		return
	}
	if n.run != run {
		n.run, n.usedRows = run, rowMark{}
	}
	if n.currentRoundRows.round == r {
		n.usedRows = n.currentRoundRows
	}
	n.usedRows.round = max(n.usedRows.round, r)
	n.checkAt = time.Time{}
}

// rowsReplaced notes that rows were read. If earlier rows are no longer there and rows have no times, all are new.
func (n *newRowCounter) rowsReplaced(v data.View) {
	if v.RenewalReason != "" && v.Times == nil {
		n.usedRows.rows, n.currentRoundRows.rows = 0, 0
	}
}

// count returns the number of rows to train on that are new in a run.
func (n *newRowCounter) count(run wire.RunID, p *part.PreparedTask) int {
	if p == nil {
		return 0
	}
	all, used := p.TrainingRows.Len(), rowMark{}
	if n.run == run {
		used = n.usedRows
	}
	if p.View.Times != nil && used.newest != 0 {
		used.rows = p.View.Times.Find(used.newest + 1)
	}
	return max(0, all-used.rows)
}

// newRowsReport returns what the next hello reports of new rows.
func (p *Part) newRowsReport() wire.NewRowsReport {
	if p.core.Announcement.Announcement.MinNewRows == 0 {
		return wire.NewRowsReport{}
	}
	run := p.core.ObeyedPosition.Run
	n := wire.NewRowsReport{Known: true,
		UnusedRows: uint32(min(uint64(p.newRows.count(run, p.prepared)), math.MaxUint32))}
	if p.newRows.run == run {
		n.LastUsedRound = p.newRows.usedRows.round
	}
	return n
}

// awaitsRows reports whether the next round waits for new rows.
func (p *Part) awaitsRows() bool {
	a := &p.core.Announcement.Announcement
	return a.MinNewRows > 0 && a.Phase == wire.PhaseIdle && p.core.Connected
}

// checkForAwaitedRows checks the source while the next round waits for new rows and the agent has too few. If it has
// enough, a hello reports them: they may have arrived during a round, whose end has voided the earlier report.
func (p *Part) checkForAwaitedRows(now time.Time) {
	if !p.awaitsRows() || now.Before(p.newRows.checkAt) {
		return
	}
	p.newRows.checkAt = now.Add(newRowsCheckInterval)
	least := uint64(p.core.Announcement.Announcement.MinNewRows)
	switch tooFew := uint64(p.newRows.count(p.core.ObeyedPosition.Run, p.prepared)) < least; {
	case tooFew && now.Before(p.nextCheckAt): // the source was checked a moment ago
		p.newRows.checkAt = p.nextCheckAt
	case tooFew:
		p.rereadIfChanged()
	case p.newRowsReport() != p.newRows.lastReported:
		p.core.Step(agentround.NewRowsAvailable{})
	}
}
