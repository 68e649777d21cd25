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
	// beginIntake starts the intake. end stops it.
	beginIntake(*readingRecorder) (end func() error, err error)
	// probe returns the reason why no reading can arrive, or nil.
	probe() error
}

// collectorSource implements data.ReadingCollector: it records the readings of an intake in a ring.
type collectorSource struct {
	intake          readingIntake
	rules           rows.ValueRules // rules without the clock, which OpenRows adds
	rowStorage      rows.StorageSettings
	sharedRowsByKey rows.SharedRowsCache
	recorder        *readingRecorder // recorder of the readings; nil before Start
	stopCollecting  func() error
}

// Start implements data.ReadingCollector.
func (s *collectorSource) Start(e data.CollectorEnv) (err error) {
	r := newReadingRecorder(e, newSourceStats(e.Now, e.Logger))
	if s.stopCollecting, err = s.intake.beginIntake(r); err != nil {
		return errors.Join(err, r.close())
	}
	s.recorder = r
	return nil
}

// OpenRows implements data.Source.
func (s *collectorSource) OpenRows(w data.RowQuery) data.QueriedRows {
	if w.Recipe == nil {
		return unreadableRows{errTaskWithoutInputs}
	}
	wanted := w.Inputs()
	return s.sharedRowsByKey.OpenTaskRows(w, func() *rows.SharedRows {
		by := s.rules
		by.Now = s.recorder.env.Now
		return rows.NewRowsFromReadings(s.recorder.newReadingFeed(wanted), w, by, s.rowStorage, func() error {
			return s.recorder.noReadingsError(wanted)
		})
	})
}

// Probe implements data.Source.
func (s *collectorSource) Probe() error {
	switch {
	case s.recorder == nil:
		return s.intake.probe()
	case s.recorder.ringSize().Entries > 0:
		return nil
	}
	return s.recorder.noReadingsError(nil)
}

// QualityReport implements data.QualityReporter.
func (s *collectorSource) QualityReport() data.QualityReport {
	if s.recorder == nil {
		return data.QualityReport{}
	}
	r := data.QualityReport{Columns: s.recorder.stats.columnReports()}
	var inputs []string
	for _, c := range r.Columns {
		if c.Name != "" { // the entry with the empty name counts payloads that cannot be parsed
			inputs = append(inputs, c.Name)
		}
	}
	r.Troubles = s.recorder.stats.currentTroubles(inputs)
	r.AddUnusedValueTroubles(inputs)
	return r
}

// Close implements data.Source.
func (s *collectorSource) Close() error {
	if s.recorder == nil {
		return nil
	}
	return errors.Join(s.stopCollecting(), s.recorder.close())
}

// noReadingsError returns an error that explains why no readings are available.
func (r *readingRecorder) noReadingsError(wanted []string) error {
	why := "no readings received since " + r.stats.startedAt.UTC().Format(time.RFC3339)
	for _, c := range r.stats.columnReports() {
		if c.ReceivedValues > 0 && (wanted == nil || slices.Contains(wanted, c.Name) || c.Name == "") {
			why = "the received values cannot be used"
			if c.LastUnusedProblem != "" {
				why += fmt.Sprintf(": %s: %s", c.LastUnusedWhere, c.LastUnusedProblem)
				break
			}
		}
	}
	for _, t := range r.stats.currentTroubles(wanted) {
		why += "; " + t.Text
	}
	return &data.FileError{File: r.env.RingFolder, Problem: why}
}

// unreadableRows implements data.QueriedRows for a task that the configuration of the source does not allow.
type unreadableRows struct{ err error }

// Changed implements data.QueriedRows.
func (unreadableRows) Changed() bool { return false }

// Snapshot implements data.QueriedRows.
func (r unreadableRows) Snapshot() (data.RowSnapshot, error) { return data.RowSnapshot{}, r.err }

var errTaskWithoutInputs = errors.New("the task requires columns of a file, " +
	"but the data source provides readings: define task.inputs, or use a file on the device (data.source: csv)")
