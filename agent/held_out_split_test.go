package agent_test

import (
	"math"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fedmesh/fedmesh/agent/training"
)

// TestHeldOutRows checks that the models of a run are scored on the last rows of the run's first snapshot and on all
// later rows, even after a restart. The next run must hold out different rows.
func TestHeldOutRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogger(t, "a,b,y\n1,0,2\n0,1,-1\n1,1,1\n2,1,3\n1,2,0\n0,0,1\n")
		l.stop()
		l.cfg.TaskData.HeldOutShare = 0.4
		l.start()
		want := func(rows string, held int, risk float64) {
			t.Helper()
			if got := l.rows(); !strings.HasPrefix(got, rows) {
				t.Errorf("%s\nwant %s", got, rows)
			}
			all := eventsOf[training.LocalTrainingFinished](l.scene)
			if s := all[len(all)-1].HeldOutScore; s == nil || s.Samples != held || math.Abs(s.Risk-risk) > 1e-6 {
				t.Errorf("the score is %+v, want that of %d rows, %v", s, held, risk)
			}
		}
		// A model whose parameters are all zero has half the mean of y² as its risk.
		l.plays(1)
		want("hello 4, update 4 of round 1", 2, (0*0+1*1)/2./2)
		l.write("a,b,y\n1,0,2\n0,1,-1\n1,1,1\n2,1,3\n1,2,0\n0,0,1\n9,9,9\n8,8,8\n")
		l.plays(2)
		l.plays(3)
		want("hello 4, update 4 of round 3", 4, (0*0+1*1+9*9+8*8)/4./2)
		l.stop()
		l.start()
		l.plays(4)
		want("hello 4, update 4 of round 4", 4, (0*0+1*1+9*9+8*8)/4./2)
		l.run = 6
		l.plays(1)
		l.plays(2)
		want("hello 5, update 5 of round 2", 3, (1*1+9*9+8*8)/3./2)
	})
}
