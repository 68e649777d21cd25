package agent_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fedmesh/fedmesh/agent/taskdata"
	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/sources"
	"github.com/fedmesh/fedmesh/internal/testkit"
)

// TestRowsAreLost checks that the agent declines a round if the disk loses rows that do not fit into memory. In the
// next round the rows must be available again.
func TestRowsAreLost(t *testing.T) {
	if testing.Short() {
		t.Skip("more rows than a machine keeps in memory")
	}
	synctest.Test(t, func(t *testing.T) {
		l := newLogger(t, "a,b,y\n"+strings.Repeat("1,0,2\n0,1,-1\n1,1,1\n", 250_000))
		l.stop()
		folder := t.TempDir()
		c := data.Config{Source: data.SourceCSV, CSVPath: l.path, RowFileFolder: folder}
		var err error
		if l.cfg.TaskData.Source, err = sources.Open(&c); err != nil {
			t.Fatal(err)
		}
		l.start()
		l.plays(1)
		if got := l.rows(); !strings.HasPrefix(got, "hello 750000, update 750000 of round 1") {
			t.Fatal(got)
		}
		testkit.TruncateOpenFile(t, folder)
		l.plays(2)
		failed := eventsOf[training.LocalTrainingFailed](l.scene)
		if len(failed) != 1 || failed[0].Round != 2 || !strings.Contains(failed[0].Err.Error(),
			"cannot read the rows stored in ") {
			t.Errorf("failed: %+v", failed)
		}
		l.plays(3)
		l.plays(4)
		if got := l.rows(); !strings.HasPrefix(got, "hello 750000, update 750000 of round 4") {
			t.Error(got)
		}
		loaded := eventsOf[taskdata.RowsLoaded](l.scene)
		if last := loaded[len(loaded)-1]; !strings.Contains(last.ReplacementReason,
			"cannot read the rows stored in ") ||
			last.Problem != nil {
			t.Errorf("%+v", last)
		}
	})
}
