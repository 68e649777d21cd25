package agent

import (
	"math"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// newRowsCheckInterval is how often an agent looks for new rows, and so says hello for them at most, while the next
// round waits for some and it has too few.
const newRowsCheckInterval = 5 * time.Minute

// newRowCounter counts the rows that no round of the run has used. A process that has just started knows of none that
// has.
type newRowCounter struct {
	run              wire.RunID
	usedRows         rowMark            // the rows that the model has
	currentRoundRows rowMark            // those of the round under way, or of one whose outcome is not known
	lookAt           time.Time          // of the next look at the data; zero once a round has used rows
	lastReported     wire.NewRowsReport // by the last hello
}

// rowMark is the end of the rows that a round has trained on.
type rowMark struct {
	round  wire.RoundID
	rows   int
	newest int64 // the time of the last one; 0 where rows have no time
}

// noteTrainingStart takes note that a round trains on rows.
func (n *newRowCounter) noteTrainingStart(run wire.RunID, r wire.RoundID, p *preparedTask) {
	if n.run != run {
		n.run, n.usedRows = run, rowMark{}
	}
	n.currentRoundRows = rowMark{round: r, rows: p.trainingRows.Len()}
	if p.view.Times != nil && n.currentRoundRows.rows > 0 {
		n.currentRoundRows.newest = p.view.Times.At(n.currentRoundRows.rows - 1)
	}
	n.lookAt = time.Time{}
}

// noteUpdateFate takes note of what became of a round's update. Of one that an earlier process has made, or whose
// outcome has come after the next round began, the rows are not known: they count as new.
func (n *newRowCounter) noteUpdateFate(run wire.RunID, r wire.RoundID, f wire.UpdateFate) {
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
	n.lookAt = time.Time{}
}

// noteRowsReplaced takes note that the rows before are void. Without times all are new then.
func (n *newRowCounter) noteRowsReplaced(v data.View) {
	if v.RenewalReason != "" && v.Times == nil {
		n.usedRows.rows, n.currentRoundRows.rows = 0, 0
	}
}

// count returns how many rows to train on are new in a run.
func (n *newRowCounter) count(run wire.RunID, p *preparedTask) int {
	if p == nil {
		return 0
	}
	all, used := p.trainingRows.Len(), rowMark{}
	if n.run == run {
		used = n.usedRows
	}
	if p.view.Times != nil && used.newest != 0 {
		used.rows = p.view.Times.Find(used.newest + 1)
	}
	return max(0, all-used.rows)
}

// newRowsForHello is what the next hello says of new rows.
func (a *Agent) newRowsForHello() wire.NewRowsReport {
	if a.core.Announcement.Announcement.MinNewRows == 0 {
		return wire.NewRowsReport{}
	}
	n := wire.NewRowsReport{Known: true, UnusedRows: uint32(min(uint64(a.newRows.count(a.lastObeyedPosition.Run,
		a.prepared)),
		math.MaxUint32))}
	if a.newRows.run == a.lastObeyedPosition.Run {
		n.LastUsedRound = a.newRows.usedRows.round
	}
	return n
}

// awaitsRows reports whether the next round waits for new rows.
func (a *Agent) awaitsRows() bool {
	ann := &a.core.Announcement.Announcement
	return ann.MinNewRows > 0 && ann.Phase == wire.PhaseIdle && a.core.Connected
}

// checkForNewRows looks at the data while the next round waits for new rows, and they have too few. Where they have
// enough, the agent says so: they may have come while a round was under way, whose end has voided what it said of them
// then.
func (a *Agent) checkForNewRows(now time.Time) {
	if !a.awaitsRows() || now.Before(a.newRows.lookAt) {
		return
	}
	a.newRows.lookAt = now.Add(newRowsCheckInterval)
	switch few := uint64(a.newRows.count(a.lastObeyedPosition.Run,
		a.prepared)) < uint64(a.core.Announcement.Announcement.MinNewRows); {
	case few && now.Before(a.newDataCheckAt): // the data were looked at a moment ago
		a.newRows.lookAt = a.newDataCheckAt
	case few:
		a.checkForNewData()
	case a.newRowsForHello() != a.newRows.lastReported:
		a.stepRoundMachine(round.NewRowsAvailable{})
	}
}
