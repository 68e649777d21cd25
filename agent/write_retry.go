package agent

import (
	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/round"
)

// The writes that may be tried again, by what they are for.
const (
	obeyedPositionWrite = "save the announcement's place"
	updateWrite         = "save the update"
	personalModelWrite  = "save what of the model is the agent's own"
	// feedbackWrite is before the update is removed, which has it too.
	feedbackWrite = "save what the codec has not sent"
	updateRemoval = "remove the old update"
)

// saveObeyedPosition saves an announcement's place beside the owner, one at a time, the newest next.
func (a *Agent) saveObeyedPosition(e round.SavePosition) {
	a.lastObeyedPosition = e.Position
	if b := a.endless; b != nil && b.runIsOver(a.lastObeyedPosition) {
		a.endBlock(b)
	}
	a.writes.Forget(obeyedPositionWrite)
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

// finishPositionWrite tells the machine. While the place could not be saved the machine declines.
func (a *Agent) finishPositionWrite(e round.SavePosition, err error) {
	if newest := *a.positionBeingSaved; newest != e {
		a.startPositionWrite(newest)
		return
	}
	a.positionBeingSaved = nil
	a.writes.Finish(state.Write{Purpose: obeyedPositionWrite,
		Do:   func() error { return saveObeyed(a.announcementSlots, e.Position, e.AnnouncementDigest) },
		Done: func() { a.stepRoundMachine(round.PositionSaved{Position: e.Position}) }}, err)
	if err != nil {
		a.stepRoundMachine(round.PositionSaved{Position: e.Position, Failed: true})
	}
}
