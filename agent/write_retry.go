package agent

import (
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/round"
)

// writeRetryInterval is the time after which a write that failed is tried again.
const writeRetryInterval = 5 * time.Second

// failedWrite is a write that failed, and is tried again.
type failedWrite struct {
	purpose   string
	write     func() error
	onWritten func() // nil if nothing follows
}

// The writes that may be tried again, by what they are for.
const (
	obeyedPositionWrite = "save the announcement's place"
	updateWrite         = "save the update"
	personalModelWrite  = "save what of the model is the agent's own"
	// feedbackWrite is before the update is removed, which has it too.
	feedbackWrite     = "save what the codec has not sent"
	updateRemoval     = "remove the old update"
	heldOutSplitWrite = "save which rows are held out"
	rootDocumentWrite = "save the root document"
	keysWrite         = "save another key or certificate"
	clockWrite        = "save the coordinator's time"
	attestationWrite  = "save the coordinator's word about this agent's key"
	groupKeysWrite    = "save the key of the group"
)

// pulledBlobWrite is what a transfer does, which tries again by itself.
const pulledBlobWrite = "store a model or task on its way"

// writeOrRetry writes to the state folder, in the place of an earlier write for the
// same purpose. While it fails it is tried again; done follows when it is done.
func (a *Agent) writeOrRetry(what string, write func() error, done func()) error {
	err := write()
	a.finishWrite(failedWrite{what, write, done}, err)
	return err
}

// finishWrite takes the result of a write.
func (a *Agent) finishWrite(w failedWrite, err error) {
	a.failedWrites = slices.DeleteFunc(a.failedWrites, func(old failedWrite) bool { return old.purpose == w.purpose })
	a.reportWriteResult(w.purpose, err)
	switch {
	case err != nil:
		if len(a.failedWrites) == 0 {
			a.writeRetryAt = a.owner.Now().Add(writeRetryInterval)
		}
		a.failedWrites = append(a.failedWrites, w)
	case w.onWritten != nil:
		w.onWritten()
	}
}

// retryFailedWrites tries again what failed.
func (a *Agent) retryFailedWrites(now time.Time) {
	if len(a.failedWrites) == 0 || now.Before(a.writeRetryAt) {
		return
	}
	a.writeRetryAt = now.Add(writeRetryInterval)
	for _, w := range slices.Clone(a.failedWrites) {
		if slices.ContainsFunc(a.failedWrites, func(still failedWrite) bool { return still.purpose == w.purpose }) {
			a.finishWrite(w, w.write())
		}
	}
}

// abandonWrite gives up a write that need not be done any more.
func (a *Agent) abandonWrite(what string) { a.finishWrite(failedWrite{purpose: what}, nil) }

// reportWriteResult tells when the state folder begins to fail, and when it is well again.
func (a *Agent) reportWriteResult(what string, err error) {
	began, over := a.writeFailures.RecordResult(what, err)
	if began {
		a.cfg.Observer.Observe(host.StorageFailing{Operation: what, Err: err})
	}
	if over {
		a.cfg.Observer.Observe(host.StorageRecovered{})
	}
}

// saveObeyedPosition saves an announcement's place beside the owner, one at a time, the newest next.
func (a *Agent) saveObeyedPosition(e round.SavePosition) {
	a.lastObeyedPosition = e.Position
	if b := a.endless; b != nil && b.runIsOver(a.lastObeyedPosition) {
		a.endBlock(b)
	}
	// not once more after the new one
	a.failedWrites = slices.DeleteFunc(a.failedWrites,
		func(old failedWrite) bool { return old.purpose == obeyedPositionWrite })
	busy := a.positionBeingSaved != nil
	if a.positionBeingSaved = &e; !busy {
		a.startPositionWrite(e)
	}
	a.splitForNewRun()
	a.checkForNewData()
}

func (a *Agent) startPositionWrite(e round.SavePosition) {
	a.owner.Go(func() {
		err := saveObeyed(a.announcementSlots, e.Position, e.AnnouncementDigest)
		a.owner.RunOnLoop(func() { a.finishPositionWrite(e, err) })
	})
}

// finishPositionWrite tells the machine. While the place could not be saved the machine declines.
func (a *Agent) finishPositionWrite(e round.SavePosition, err error) {
	if newest := *a.positionBeingSaved; newest != e {
		a.startPositionWrite(newest)
		return
	}
	a.positionBeingSaved = nil
	a.finishWrite(failedWrite{obeyedPositionWrite, func() error {
		return saveObeyed(a.announcementSlots, e.Position,
			e.AnnouncementDigest)
	},
		func() { a.stepRoundMachine(round.PositionSaved{Position: e.Position}) }}, err)
	if err != nil {
		a.stepRoundMachine(round.PositionSaved{Position: e.Position, Failed: true})
	}
}
