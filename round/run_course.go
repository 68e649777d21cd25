package round

import (
	"time"

	"github.com/fedmesh/fedmesh/round/stop"
)

// RunCourse is the operator's decision about a run: continue, pause or stop.
type RunCourse string

// The courses.
const (
	CourseGo    RunCourse = "go"    // rounds follow each other
	CoursePause RunCourse = "pause" // no round is opened
	CourseStop  RunCourse = "stop"  // the run is over
)

// handleCourseChanged puts an operator's decision into effect. An open round continues to its end, unless e.Now
// abandons it.
func (c *Coordinator) handleCourseChanged(now time.Time, e CourseChanged) {
	c.cfg.Course = e.Course
	switch {
	case c.phaseEnteredAt.IsZero():
		c.recoveredRoundAbandoned = e.AbandonsRound // the start asks
	case c.isInPhase(CoordinatorCollecting) && e.AbandonsRound && e.Course != CourseGo:
		c.abandon(now, AbandonAsked, nil)
	case c.isInPhase(CoordinatorCollecting), c.isInPhase(CoordinatorClosing):
		// its end asks
	case e.Course == CourseStop && !c.isInPhase(CoordinatorFinished),
		e.Course == CoursePause && (c.isInPhase(CoordinatorIdle) || c.isInPhase(CoordinatorGathering)):
		c.pauseOrStopByCourse(now)
	case e.Course == CourseGo && c.isInPhase(CoordinatorPaused):
		c.startNextRound(now)
	case e.Course == CourseGo && c.isInPhase(CoordinatorFinished):
		c.resumeFinishedRun(now)
	}
}

// resumeFinishedRun has a finished run go on, unless a rule ends it.
func (c *Coordinator) resumeFinishedRun(now time.Time) {
	switch why := c.runStopReason(now); {
	case why == "":
		c.rec.Ended = ""
		c.startNextRound(now) // more is asked for than before
	case why != c.rec.Ended:
		c.rec.Attempt++
		c.finish(now, why)
	}
}

// pauseOrStopByCourse reports whether no round is to be opened, and then sees to that: the run pauses until it is told
// to go on, or is over.
func (c *Coordinator) pauseOrStopByCourse(now time.Time) bool {
	switch c.cfg.Course {
	case CoursePause:
		c.enterIdlePhase(now, CoordinatorPaused)
	case CourseStop:
		c.progress.byAgent = nil
		c.forgetParticipants()
		c.finish(now, stop.Asked)
	default:
		return false
	}
	return true
}
