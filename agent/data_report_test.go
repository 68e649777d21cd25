package agent_test

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/taskdata"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/sources"
	"github.com/fedmesh/fedmesh/observe"
)

// collecting is a data source whose quality report contains the number of quality reports requested so far.
type collecting struct {
	data.Source
	asked uint64
}

// untold contains rows whose source provides no quality reports.
type untold struct{ data.QueriedRows }

func (c *collecting) OpenRows(w data.RowQuery) data.QueriedRows { return untold{c.Source.OpenRows(w)} }

func (c *collecting) QualityReport() data.QualityReport {
	c.asked++
	return data.QualityReport{Columns: []data.ColumnReport{{Name: "a", Used: c.asked}}}
}

// TestCollected checks that an agent reports how many values its source has collected. While the agent has too few
// rows, it must check the source again soon, even without messages from the coordinator.
func TestCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &logger{newScene(t), filepath.Join(t.TempDir(), "rows.csv")}
		l.write("a,b,y\n1,0,2\n")
		source, err := sources.Open(&data.Config{Source: data.SourceCSV, CSVPath: l.path})
		if err != nil {
			t.Fatal(err)
		}
		l.cfg.TaskData.Source, l.cfg.TaskData.MinRows = &collecting{Source: source}, 2
		l.start()
		wait(25 * time.Second) // The coordinator sends no message during this time.
		if told := eventsOf[taskdata.SourceReportReceived](l.scene); len(told) != 3 {
			t.Errorf("collected %+v", told)
		}
		l.plays(1)
		if got := l.declined(); got != "too_few_rows" {
			t.Fatalf("declined %q", got)
		}
		l.write("a,b,y\n1,0,2\n0,1,-1\n1,1,1\n")
		wait(15 * time.Second)
		events := eventsOf[taskdata.RowsLoaded](l.scene)
		if f := events[len(events)-1]; f.Rows != 3 || f.Problem != nil {
			t.Errorf("loaded %+v", f)
		}
		told := eventsOf[taskdata.SourceReportReceived](l.scene)
		if len(told) < 3 || told[0].PreviousReport.Columns != nil || !reflect.DeepEqual(told[2].PreviousReport,
			told[1].QualityReport) ||
			told[2].Columns[0].Used != 3 {
			t.Errorf("collected %+v", told)
		}
	})
}

// updatedRows contains rows with a quality report that counts how often it was updated.
type updatedRows struct {
	data.QueriedRows
	updates *atomic.Uint64
}

func (r updatedRows) UpdateQualityReport() { r.updates.Add(1) }

func (r updatedRows) QualityReport() data.QualityReport {
	return data.QualityReport{Columns: []data.ColumnReport{{Name: "a", Used: r.updates.Load()}}}
}

// updatedSource is a source of updatedRows.
type updatedSource struct {
	data.Source
	updates atomic.Uint64
}

func (s *updatedSource) OpenRows(w data.RowQuery) data.QueriedRows {
	return updatedRows{s.Source.OpenRows(w), &s.updates}
}

// TestReportCoversNewData checks that an idle agent, whose rows fit the task, reads new data for its reports. Otherwise
// it would report a faulty sensor only after the next announcement.
func TestReportCoversNewData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &logger{newScene(t), filepath.Join(t.TempDir(), "rows.csv")}
		l.write("a,b,y\n1,0,2\n0,1,-1\n1,1,1\n")
		source, err := sources.Open(&data.Config{Source: data.SourceCSV, CSVPath: l.path})
		if err != nil {
			t.Fatal(err)
		}
		l.cfg.TaskData.Source, l.cfg.TaskData.MinRows = &updatedSource{Source: source}, 2
		l.start()
		l.plays(1)
		wait(time.Minute) // The coordinator sends no message during this time.
		reports := eventsOf[taskdata.SourceReportReceived](l.scene)
		if last := reports[len(reports)-1]; len(last.Columns) != 1 || last.Columns[0].Used < 5 {
			t.Errorf("last report %+v; want at least 5 updates in a minute", last)
		}
	})
}

// pendingSource is a source whose readings do not suffice for a row. The number of readings grows with each snapshot.
type pendingSource struct {
	data.Source
	snapshots int
}

func (s *pendingSource) OpenRows(data.RowQuery) data.QueriedRows { return s }

func (*pendingSource) Changed() bool { return true }

func (*pendingSource) QualityReport() data.QualityReport { return data.QualityReport{} }

func (s *pendingSource) Snapshot() (data.RowSnapshot, error) {
	s.snapshots++
	return data.RowSnapshot{}, &data.FileError{Problem: fmt.Sprintf("only %d readings", s.snapshots), IsPending: true}
}

// TestPendingData checks that an agent without enough readings declines a round with the reason too_few_rows, and not
// with the reason bad_data. All of its reports except the first must be marked as repetitions.
func TestPendingData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &logger{newScene(t), ""}
		l.cfg.TaskData.Source = &pendingSource{}
		l.start()
		l.plays(1)
		if got := l.declined(); got != "too_few_rows" {
			t.Errorf("declined %q", got)
		}
		wait(time.Minute)
		events := eventsOf[taskdata.RowsLoaded](l.scene)
		if len(events) < 3 {
			t.Fatalf("%d reports", len(events))
		}
		for i, e := range events {
			if e.Problem == nil || e.WasPending != (i > 0) {
				t.Errorf("report %d: %+v", i, e)
			}
		}
	})
}

// TestTroubleOfEarlierAgent checks that an agent resolves the conditions that an earlier agent in the same process has
// raised, although it does not know the reports of the earlier agent.
func TestTroubleOfEarlierAgent(t *testing.T) {
	var d observe.EventDescription
	taskdata.SourceReportReceived{}.Describe(&d)
	for _, kind := range data.TroubleKinds() {
		name := "data (" + string(kind) + ")"
		if !slices.ContainsFunc(d.Conditions,
			func(c observe.OperatorCondition) bool { return c.Name == name && c.Problem == "" }) {
			t.Errorf("%s is not resolved", name)
		}
	}
}
