package agent

import (
	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/round"
)

// The purposes of writes to the state folder (state.Write), as people read them while a write fails.
const (
	obeyedPositionWrite = "save the announcement's place"
	updateWrite         = "save the update"
	personalModelWrite  = "save what of the model is the agent's own"
	// feedbackWrite is written before the update is removed, which contains the residual, too.
	feedbackWrite = "save what the codec has not sent"
	updateRemoval = "remove the old update"
)

// saveObeyedPosition saves the position of an announcement beside the owner. One write runs at a time; the newest
// position is written next.
func (a *Agent) saveObeyedPosition(e round.SavePosition) {
	a.lastObeyedPosition = e.Position
	if b := a.endless; b != nil && b.runIsOver(a.lastObeyedPosition) {
		a.endBlock(b)
	}
	a.core.Writes.Forget(obeyedPositionWrite)
	busy := a.positionBeingSaved != nil
	if a.positionBeingSaved = &e; !busy {
		a.startPositionWrite(e)
	}
	a.taskData.Refresh()
}

func (a *Agent) startPositionWrite(e round.SavePosition) {
	a.owner.Go(func() {
		err := saveObeyed(a.announcementSlots, e.Position, e.AnnouncementDigest)
		a.owner.RunOnLoop(func() { a.finishPositionWrite(e, err) })
	})
}

// finishPositionWrite passes the result to the round machine, which declines rounds while the position cannot be saved.
func (a *Agent) finishPositionWrite(e round.SavePosition, err error) {
	if newest := *a.positionBeingSaved; newest != e {
		a.startPositionWrite(newest)
		return
	}
	a.positionBeingSaved = nil
	a.core.Writes.Finish(state.Write{Purpose: obeyedPositionWrite,
		Do:   func() error { return saveObeyed(a.announcementSlots, e.Position, e.AnnouncementDigest) },
		Done: func() { a.stepRoundMachine(round.PositionSaved{Position: e.Position}) }}, err)
	if err != nil {
		a.stepRoundMachine(round.PositionSaved{Position: e.Position, Failed: true})
	}
}
