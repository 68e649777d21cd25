package sources

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/rows"
)

// readingIntake receives messages or lines and passes their readings to a recorder.
type readingIntake interface {
	// begin starts the intake. end stops it.
	begin(*readingRecorder) (end func() error, err error)
	// probe returns why no reading can arrive, or nil.
	probe() error
}

// collectorSource implements data.Collector: it records the readings of an intake in a ring.
type collectorSource struct {
	intake         readingIntake
	rules          rows.ValueRules // without the clock, which Open adds
	rowStorage     rows.StorageSettings
	openRows       rows.SharedRowsByKey
	recorder       *readingRecorder // nil before Start
	stopCollecting func() error
}

// Start implements Collector.
func (s *collectorSource) Start(e data.CollectorEnv) (err error) {
	r := newReadingRecorder(e, newSourceStats(e.Now, e.Logger))
	if s.stopCollecting, err = s.intake.begin(r); err != nil {
		return errors.Join(err, r.close())
	}
	s.recorder = r
	return nil
}

// OpenRows implements Source.
func (s *collectorSource) OpenRows(w data.RowQuery) data.QueriedRows {
	if w.Recipe == nil {
		return rowsWithoutInputs{}
	}
	wanted := w.Inputs()
	return s.openRows.Open(w, func() *rows.SharedRows {
		by := s.rules
		by.Now = s.recorder.env.Now
		return rows.NewGridRows(s.recorder.newFeed(wanted), w, by, s.rowStorage, func() error {
			return s.recorder.noReadingsError(wanted)
		})
	})
}

// Probe implements Source.
func (s *collectorSource) Probe() error {
	switch {
	case s.recorder == nil:
		return s.intake.probe()
	case s.recorder.ringSize().Entries > 0:
		return nil
	}
	return s.recorder.noReadingsError(nil)
}

// Report implements Reporter, for those who have no rows of it.
func (s *collectorSource) Report() data.Report {
	if s.recorder == nil {
		return data.Report{}
	}
	r := data.Report{Columns: s.recorder.stats.columnReports()}
	var inputs []string
	for _, c := range r.Columns {
		if c.Name != "" { // else it is of payloads that cannot be read
			inputs = append(inputs, c.Name)
		}
	}
	r.Troubles = s.recorder.stats.currentTroubles(inputs)
	return r
}

// Close implements Source.
func (s *collectorSource) Close() error {
	if s.recorder == nil {
		return nil
	}
	return errors.Join(s.stopCollecting(), s.recorder.close())
}

// noReadingsError says that there are no readings, and why.
func (r *readingRecorder) noReadingsError(wanted []string) error {
	why := "nothing has come since " + r.stats.startedAt.UTC().Format(time.RFC3339)
	for _, c := range r.stats.columnReports() {
		if c.ReceivedValues > 0 && (wanted == nil || slices.Contains(wanted, c.Name) || c.Name == "") {
			why = "the received values cannot be used"
			if c.Problem != "" {
				why += fmt.Sprintf(": %s: %s", c.LastUnusedWhere, c.Problem)
				break
			}
		}
	}
	for _, t := range r.stats.currentTroubles(wanted) {
		why += "; " + t.Text
	}
	return &data.FileError{File: r.env.Dir, Problem: why}
}

// rowsWithoutInputs are those of a task that has columns and no inputs.
type rowsWithoutInputs struct{}

func (rowsWithoutInputs) Changed() bool { return false }

func (rowsWithoutInputs) Snapshot() (data.View, error) {
	return data.View{}, errors.New("the task wants the columns of a file, and the source has readings: " +
		"give the task inputs (task.inputs), or the device a file (data.source: csv)")
}
