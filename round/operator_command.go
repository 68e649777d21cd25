package round

import (
	"time"

	"github.com/fedmesh/fedmesh/round/stop"
)

// OperatorCommand is the operator's decision about a run: continue, pause or stop.
type OperatorCommand string

// The commands.
const (
	CommandContinue OperatorCommand = "go"    // the next round opens when the previous one has ended
	CommandPause    OperatorCommand = "pause" // the open round is completed, and no new round is opened
	CommandStop     OperatorCommand = "stop"  // the run ends after the open round
)

// handleOperatorCommand applies an operator's command. An open round is completed unless e.AbandonsRound is set.
func (c *CoordinatorMachine) handleOperatorCommand(now time.Time, e OperatorCommandChanged) {
	c.cfg.OperatorCommand = e.Command
	switch {
	case c.phaseEnteredAt.IsZero():
		// Remember the command until startOrResumeRun, which abandons the round.
		c.abandonsRecoveredRound = e.AbandonsRound
	case c.isInPhase(CoordinatorCollecting) && e.AbandonsRound && e.Command != CommandContinue:
		c.abandonRound(now, AbandonByOperator, nil)
	case c.isInPhase(CoordinatorCollecting), c.isInPhase(CoordinatorClosing):
		// The command is applied when the open round ends.
	case e.Command == CommandStop && !c.isInPhase(CoordinatorFinished),
		e.Command == CommandPause && (c.isInPhase(CoordinatorIdle) || c.isInPhase(CoordinatorGathering)):
		c.pauseOrStopByCommand(now)
	case e.Command == CommandContinue && c.isInPhase(CoordinatorPaused):
		c.startNextRound(now)
	case e.Command == CommandContinue && c.isInPhase(CoordinatorFinished):
		c.resumeFinishedRun(now)
	}
}

// resumeFinishedRun continues a finished run, for example after its limits were raised, unless a stopping rule still
// applies.
func (c *CoordinatorMachine) resumeFinishedRun(now time.Time) {
	switch why := c.runStopReason(now); {
	case why == "":
		c.record.RunStopReason = ""
		c.startNextRound(now) // The limits of the run were raised, so continue with the next round.
	case why != c.record.RunStopReason:
		c.record.Attempt++
		c.finishRun(now, why)
	}
}

// pauseOrStopByCommand pauses or stops the run if the operator has requested it. It reports whether the run is now
// paused or stopped.
func (c *CoordinatorMachine) pauseOrStopByCommand(now time.Time) bool {
	switch c.cfg.OperatorCommand {
	case CommandPause:
		c.enterIdlePhase(now, CoordinatorPaused)
	case CommandStop:
		c.progress.progressByAgent = nil
		c.forgetParticipants()
		c.finishRun(now, stop.StoppedByOperator)
	default:
		return false
	}
	return true
}
