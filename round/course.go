package round

import (
	"time"

	"github.com/fedmesh/fedmesh/round/stop"
)

// Course is what a person has decided about a run.
type Course string

// The courses.
const (
	CourseGo    Course = "go"    // rounds follow each other
	CoursePause Course = "pause" // no round is opened
	CourseStop  Course = "stop"  // the run is over
)

// steer takes a decision. A round under way goes on to its end unless e.Now gives it up.
func (c *Coordinator) steer(now time.Time, e Steered) {
	c.cfg.Course = e.Course
	switch {
	case c.entered.IsZero():
		c.abandonRecovered = e.Now // the start asks
	case c.in(CoordinatorCollecting) && e.Now && e.Course != CourseGo:
		c.abandon(now, AbandonAsked, nil)
	case c.in(CoordinatorCollecting), c.in(CoordinatorClosing):
		// its end asks
	case e.Course == CourseStop && !c.in(CoordinatorFinished),
		e.Course == CoursePause && (c.in(CoordinatorIdle) || c.in(CoordinatorGathering)):
		c.rests(now)
	case e.Course == CourseGo && c.in(CoordinatorPaused):
		c.next(now)
	case e.Course == CourseGo && c.in(CoordinatorFinished):
		c.takeUp(now)
	}
}

// takeUp has a finished run go on, unless a rule ends it.
func (c *Coordinator) takeUp(now time.Time) {
	switch why := c.over(now); {
	case why == "":
		c.rec.Ended = ""
		c.next(now) // more is asked for than before
	case why != c.rec.Ended:
		c.rec.Attempt++
		c.finish(now, why)
	}
}

// rests reports whether no round is to be opened, and then sees to that: the run pauses until it is told to go on, or
// is over.
func (c *Coordinator) rests(now time.Time) bool {
	switch c.cfg.Course {
	case CoursePause:
		c.idle(now, CoordinatorPaused)
	case CourseStop:
		c.peers = nil
		c.forgetParticipants()
		c.finish(now, stop.Asked)
	default:
		return false
	}
	return true
}
