package round

import (
	"time"

	"github.com/fedmesh/fedmesh/round/stop"
)

// OperatorCommand is the operator's decision about a run: continue, pause or stop.
type OperatorCommand string

// The courses.
const (
	CommandContinue OperatorCommand = "go"    // rounds follow each other
	CommandPause    OperatorCommand = "pause" // no round is opened
	CommandStop     OperatorCommand = "stop"  // the run is over
)

// handleOperatorCommand puts an operator's decision into effect. An open round continues to its end, unless e.Now
// abandons it.
func (c *CoordinatorMachine) handleOperatorCommand(now time.Time, e OperatorCommandChanged) {
	c.cfg.OperatorCommand = e.Command
	switch {
	case c.phaseEnteredAt.IsZero():
		c.abandonsRecoveredRound = e.AbandonsRound // the start asks
	case c.isInPhase(CoordinatorCollecting) && e.AbandonsRound && e.Command != CommandContinue:
		c.abandonRound(now, AbandonByOperator, nil)
	case c.isInPhase(CoordinatorCollecting), c.isInPhase(CoordinatorClosing):
		// its end asks
	case e.Command == CommandStop && !c.isInPhase(CoordinatorFinished),
		e.Command == CommandPause && (c.isInPhase(CoordinatorIdle) || c.isInPhase(CoordinatorGathering)):
		c.pauseOrStopByCommand(now)
	case e.Command == CommandContinue && c.isInPhase(CoordinatorPaused):
		c.startNextRound(now)
	case e.Command == CommandContinue && c.isInPhase(CoordinatorFinished):
		c.resumeFinishedRun(now)
	}
}

// resumeFinishedRun has a finished run go on, unless a rule ends it.
func (c *CoordinatorMachine) resumeFinishedRun(now time.Time) {
	switch why := c.runStopReason(now); {
	case why == "":
		c.record.RunStopReason = ""
		c.startNextRound(now) // more is asked for than before
	case why != c.record.RunStopReason:
		c.record.Attempt++
		c.finishRun(now, why)
	}
}

// pauseOrStopByCommand reports whether no round is to be opened, and then sees to that: the run pauses until it is told
// to go on, or is over.
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
