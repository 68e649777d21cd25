package agent_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/taskdata"
	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/sources"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// logger contains the data file of a device, and the agent that reads the file.
type logger struct {
	*scene
	path string
}

func newLogger(t *testing.T, text string) *logger {
	l := &logger{newScene(t), filepath.Join(t.TempDir(), "rows.csv")}
	l.write(text)
	c := data.Config{Source: data.SourceCSV, CSVPath: l.path}
	var err error
	if l.cfg.TaskData.Source, err = sources.Open(&c); err != nil {
		t.Fatal(err)
	}
	l.cfg.TaskData.MinRows = 2
	l.start()
	return l
}

func (l *logger) write(text string) {
	l.t.Helper()
	if err := os.WriteFile(l.path, []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
}

// plays runs a round in which the coordinator expects the number of rows in the agent's last hello message.
func (l *logger) plays(r wire.RoundID) {
	l.t.Helper()
	known := uint64(0)
	if all := l.heard(wire.TypeHello); len(all) > 0 {
		known = l.hello(all[len(all)-1]).Samples
	}
	invitation := &wire.Invitation{Agent: "press", Announcement: l.announce(r, l.training(taskOf("a task"), 0, 0)),
		RemainingMillis: 60000, StepSizeWeight: 1, MustSendUpdate: true, ReportedRows: known}
	for range 2 {
		l.direct(wire.TypeInvitation, r, invitation.Body())
		wait(15 * time.Second)
	}
}

func (l *logger) hello(e wire.Envelope) wire.Hello {
	l.t.Helper()
	h, err := wire.DecodeHello(e.Body)
	if err != nil {
		l.t.Fatal(err)
	}
	return h
}

// rows describes the numbers of rows in the last hello message, the last update and the last data event.
func (l *logger) rows() string {
	l.t.Helper()
	all := l.heard(wire.TypeHello)
	hello := l.hello(all[len(all)-1])
	e, u := l.update()
	events := eventsOf[taskdata.RowsLoaded](l.scene)
	f := events[len(events)-1]
	text := fmt.Sprintf("hello %d, update %d of round %d, %d loaded after %d", hello.Samples, u.Samples, e.Round,
		f.Rows, f.RowsBefore)
	if hello.UnfitReason != 0 {
		text += ", " + hello.UnfitReason.String()
	}
	return strings.ReplaceAll(text+strings.TrimSuffix("; "+f.ReplacementReason, "; "), l.path, "FILE")
}

// TestHelloOfMisfit checks that an agent with unusable data reports the column, the reason, the position and the
// numbers in its hello message. It must report only one event until the column or the reason changes, or the data fit
// the task.
func TestHelloOfMisfit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogger(t, "a,b,y\n1,0,2\n0,hot,-1\n")
		last := func() wire.Hello {
			all := l.heard(wire.TypeHello)
			return l.hello(all[len(all)-1])
		}
		l.plays(1)
		want := wire.DataProblem{Column: "b", Reason: "not_a_number", ExampleLocation: l.path + ": line 3",
			UnusableValues: 1, TotalValues: 2}
		if len(want.ExampleLocation) > wire.MaxName {
			want.ExampleLocation = want.ExampleLocation[len(want.ExampleLocation)-wire.MaxName:]
		}
		if h := last(); h.UnfitReason != wire.DeclineBadData || h.DataProblem != want {
			t.Errorf("%v, %+v; want %+v", h.UnfitReason, h.DataProblem, want)
		}
		events := len(eventsOf[taskdata.RowsLoaded](l.scene))
		l.write("a,b,y\n1,0,2\n0,hot,-1\n0,hot,-1\n")
		wait(time.Minute)
		if n := len(eventsOf[taskdata.RowsLoaded](l.scene)); n != events {
			t.Errorf("%d events after %d, for the same misfit", n, events)
		}
		l.write("a,b,y\n1,0,2\n0,hot,-1\n0,hot,-1\n,1,-1\n")
		wait(time.Minute)
		if h := last(); h.DataProblem.Column != "a" || h.DataProblem.Reason != "missing" ||
			h.DataProblem.UnusableValues != 3 {
			t.Errorf("another column: %+v", h)
		}
		l.write("a,y\n1,2\n")
		wait(time.Minute)
		if h := last(); h.DataProblem.Column != "b" || h.DataProblem.Reason != `this column is missing; the file has `+
			`the columns "a", "y"` {
			t.Errorf("a column that is gone: %+v", h.DataProblem)
		}
		if err := os.Remove(l.path); err != nil {
			t.Fatal(err)
		}
		wait(time.Minute)
		if h := last(); h.UnfitReason != wire.DeclineBadData || !strings.Contains(h.DataProblem.Reason,
			"no such file") {
			t.Errorf("a file that is gone: %+v", h.DataProblem)
		}
		l.write("a,b,y\n1,0,2\n1,1,3\n")
		wait(time.Minute)
		if h := last(); h.UnfitReason != 0 || h.DataProblem != (wire.DataProblem{}) || h.Samples != 2 {
			t.Errorf("mended: %+v", h)
		}
	})
}

// TestFileThatChanges checks an agent whose data file grows, is truncated, replaced and damaged. The agent's updates
// must always use the number of rows that its hello message has reported.
func TestFileThatChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		five := "a,b,y\n1,0,2\n0,1,-1\n1,1,1\n2,1,3\n1,2,0\n"
		l := newLogger(t, five)
		want := func(want string) {
			t.Helper()
			if got := l.rows(); got != want {
				t.Errorf("%s\nwant %s", got, want)
			}
		}
		l.plays(1)
		want("hello 5, update 5 of round 1, 5 loaded after 0")
		l.plays(2)
		want("hello 5, update 5 of round 2, 5 loaded after 0")

		l.write(five + "3,1,5\n1,3,-1\n7,")
		l.plays(3) // The round uses the number of rows in the last hello message.
		want("hello 7, update 5 of round 3, 7 loaded after 5")
		l.plays(4)
		want("hello 7, update 7 of round 4, 7 loaded after 5")
		if got := eventsOf[training.LocalTrainingFinished](l.scene); got[3].RiskBefore == got[2].RiskBefore {
			t.Errorf("the risk of the same model on more rows is the same: %v", got[3].RiskBefore)
		}
		if got := eventsOf[agentround.TaskFitnessChecked](l.scene); got[len(got)-1].RowCount != 7 {
			t.Errorf("the metric of rows is set from %+v", got[len(got)-1])
		}
		l.write(five + "3,1,5\n1,3,-1\n7,1,13\n")
		l.plays(5)
		l.plays(6)
		want("hello 8, update 8 of round 6, 8 loaded after 7")

		l.write("a,b,y\n1,0,2\n0,1,-1\n1,1,1\n")
		l.plays(7)
		l.plays(8)
		want("hello 3, update 3 of round 8, 3 loaded after 8; FILE: the file was truncated from 57 to 25 bytes after " +
			"9 " +
			"lines had been read; all rows of the file are read again")

		l.write("a,b,y\n1,0,2\n0,1,-1\n1,1,1\n1,warm,3\n")
		l.plays(9)
		want("hello 0, update 3 of round 8, 0 loaded after 0, bad_data")
		if f := eventsOf[taskdata.RowsLoaded](l.scene); !strings.Contains(fmt.Sprint(f[len(f)-1].Problem),
			`rows.csv: line 5: column "b": "warm" is not a number; 1 of 4 rows are unusable`) {
			t.Errorf("%v", f[len(f)-1].Problem)
		}
		n := len(eventsOf[taskdata.RowsLoaded](l.scene))
		l.plays(10)
		if got := eventsOf[taskdata.RowsLoaded](l.scene); len(got) != n {
			t.Errorf("the same damage is told again: %+v", got[n:])
		}
		if got := l.declined(); got != "bad_data bad_data" { // The agent declines once in each round.
			t.Errorf("declined %q", got)
		}
		l.write("a,b,y\n1,0,2\n0,1,-1\n1,1,1\n1,0,3\n")
		l.plays(11)
		l.plays(12)
		want("hello 4, update 4 of round 12, 4 loaded after 3")

		// Replace the file by another file with too few rows.
		if err := errors.Join(os.Link(l.path, l.path+".old"), os.Remove(l.path)); err != nil {
			t.Fatal(err)
		}
		l.write("a,b,y\n1,0,2\n")
		l.plays(13)
		want("hello 0, update 4 of round 12, 1 loaded after 0, too_few_rows; FILE: a different file has this name; " +
			"all rows of the file are read again")
	})
}
