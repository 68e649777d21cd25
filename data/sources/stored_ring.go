package sources

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/data/rows"
	"github.com/fedmesh/fedmesh/data/survey"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
)

func openStoredRing(c *data.Config, disk store.Disk, dir string) (survey.StoredSource, error) {
	return &storedRing{disk: disk, dir: dir, rules: rows.ValueRulesFromConfig(c, time.Now),
		rowStorage: rows.StorageSettingsFromConfig(c)}, nil
}

// storedRing is a source that reads the ring of a collector without collecting.
type storedRing struct {
	disk            store.Disk
	dir             string
	rules           rows.ValueRules
	rowStorage      rows.StorageSettings
	sharedRowsByKey rows.SharedRowsCache
}

// forEachReading calls take for each reading, and damaged for each damaged part. It returns read errors, or errNoRing.
func (s *storedRing) forEachReading(take func(data.Reading), damaged func(error)) error {
	err := s.disk.ReadRing(s.dir, func(first uint64, b store.RingBatch) {
		if err := decodeReadingBatch(b.Body, first, take); err != nil {
			damaged(fmt.Errorf("%s: %w", s.dir, err))
		}
	}, damaged)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", s.dir, errNoRing)
	}
	return err
}

var errNoRing = errors.New("no readings recorded yet: agentd creates this folder when it runs")

// OpenRows implements data.Source.
func (s *storedRing) OpenRows(w data.RowQuery) data.QueriedRows {
	if w.Recipe == nil {
		return unreadableRows{errTaskWithoutInputs}
	}
	return s.sharedRowsByKey.OpenTaskRows(w, func() *rows.SharedRows {
		return rows.NewRowsFromReadings(&storedRingFeed{ring: s, wantedInputs: w.Inputs()}, w, s.rules, s.rowStorage,
			func() error { return nil })
	})
}

// Probe implements data.Source.
func (s *storedRing) Probe() error { return s.forEachReading(func(data.Reading) {}, func(error) {}) }

// Close implements data.Source.
func (s *storedRing) Close() error { return nil }

// storedRingFeed passes on the stored readings once. Later readings are ignored.
type storedRingFeed struct {
	ring                     *storedRing
	wantedInputs             []string
	hasReadRing              bool
	rewindReason             string // reason for passing on all readings again; empty if not required
	data.AtomicQualityReport        // damage, and the saved counts of the agent
}

func (f *storedRingFeed) DescribeReadingPlace(string, int64) string { return f.ring.dir }

func (f *storedRingFeed) Changed() bool { return !f.hasReadRing }

// Rewind implements rows.ReadingFeed.
func (f *storedRingFeed) Rewind(why string) { f.hasReadRing, f.rewindReason = false, why }

// Read implements rows.ReadingFeed. Damaged readings are reported as a trouble instead of an error, because the agent
// cannot read them either.
func (f *storedRingFeed) Read(restart func(why string), take func(data.Reading) bool) error {
	if f.hasReadRing {
		return nil
	}
	if f.rewindReason != "" {
		restart(f.rewindReason)
	}
	f.hasReadRing, f.rewindReason = true, ""
	var all data.QualityReport
	counted, err := loadSavedCounts(f.ring.disk, f.ring.dir, f.wantedInputs)
	for _, c := range counted.Columns {
		all.Columns = append(all.Columns, c.ColumnReport)
	}
	if err == nil {
		err = f.ring.forEachReading(func(r data.Reading) { take(r) }, func(err error) {
			if len(all.Troubles) == 0 {
				all.Troubles = []data.SourceTrouble{{Kind: data.TroubleStorage, Text: err.Error()}}
			}
		})
	}
	f.SetQualityReport(all)
	if err != nil {
		f.Rewind("the stored readings could not be read completely")
	}
	return err
}

// Survey implements survey.StoredSource. Like the agent, it reads all readings again if some of them turn out to be
// outliers.
func (s *storedRing) Survey(w *data.RowQuery) *survey.SourceSurvey {
	var outliers map[uint64]bool
	for passes := 0; ; passes++ {
		x := &ringSurvey{query: w, inputByName: map[string]*survey.ColumnSurvey{}}
		x.SourcePath = s.dir
		if w != nil && w.Recipe != nil {
			x.order = rows.NewTimeOrderCheck(rows.MaxLateness(w.Recipe), s.rules.Now(), outliers)
			for _, in := range survey.NeededInputs(w) {
				x.addInputSurvey(in.Name, survey.NewInputColumnSurvey(in, s.rules))
			}
		}
		err := s.forEachReading(x.surveyReading, func(err error) {
			x.AddFault("", survey.ReasonDamaged,
				survey.DataFault{Problem: err.Error()}).Remedy = "check the disk; agentd continues " +
				"without the damaged readings"
		})
		switch {
		case errors.Is(err, errNoRing):
			x.AddFault("", survey.ReasonNothingRecorded, survey.DataFault{Problem: err.Error()})
		case err != nil:
			x.AddReadFailure(err)
		}
		if err := x.addRejectedValueCounts(s); err != nil {
			x.AddReadFailure(err)
		}
		if x.order != nil {
			if x.order.MarkFutureTailAsOutliers(); x.order.FoundOutliers && passes < rows.MaxUnconditionalRereads {
				outliers = x.order.Outliers
				continue
			}
		}
		return x.finishSurvey()
	}
}

// ringSurvey is the state of a survey of a ring.
type ringSurvey struct {
	survey.SourceSurvey
	query          *data.RowQuery
	order          *rows.TimeOrderCheck // check of the readings' times; nil without a recipe
	inputs         []*survey.ColumnSurvey
	inputByName    map[string]*survey.ColumnSurvey
	lateBeforeTime int64 // readings before this time are late
}

// addRejectedValueCounts adds the counts of values that the agent has rejected since its start, which are not in the
// ring.
func (x *ringSurvey) addRejectedValueCounts(s *storedRing) error {
	var wanted []string
	if x.query != nil {
		wanted = x.query.Inputs()
	}
	counted, err := loadSavedCounts(s.disk, s.dir, wanted)
	for _, c := range counted.Columns {
		for _, why := range data.UnusedReasons() {
			n := int(c.Unused[why])
			if n == 0 {
				continue
			}
			problem := fmt.Sprintf("values that were not recorded since the start of agentd at %s",
				counted.CountedSince.UTC().Format(time.RFC3339))
			if last := c.LastUnusedValue(why); last.Problem != "" {
				problem += fmt.Sprintf("; most recently: %s", last)
			}
			x.AddFault(c.Name, why, survey.DataFault{Problem: problem}).Count += n - 1
			if of := x.inputByName[c.Name]; of != nil && why == grid.ReasonMissing {
				of.Missing += uint64(n)
			} else if of != nil {
				of.Unused += uint64(n)
			}
		}
	}
	return err
}

func (x *ringSurvey) addInputSurvey(name string, c *survey.ColumnSurvey) *survey.ColumnSurvey {
	x.inputs, x.inputByName[name] = append(x.inputs, c), c
	return c
}

func (x *ringSurvey) surveyReading(r data.Reading) {
	x.LineCount++
	c := x.inputByName[r.Input]
	if x.order != nil && x.order.ClassifyTime(r.Time, r.SequenceNumber) == rows.TimeOutlier {
		if c != nil {
			c.Unused++
			x.AddFault(r.Input, grid.ReasonFutureTime, survey.DataFault{Problem: rows.FormatTime(r.Time) +
				" is later than the times of the following readings, or in the future"})
		}
		return
	}
	x.ExtendTimeRange(r.Time)
	switch {
	case c == nil && (x.query != nil || len(x.inputs) == maxSourceInputs):
		if len(x.UnwantedColumns) < maxSourceInputs && !slices.Contains(x.UnwantedColumns, r.Input) {
			x.UnwantedColumns = append(x.UnwantedColumns, r.Input)
		}
		return
	case c == nil:
		c = x.addInputSurvey(r.Input, survey.NewColumnSurvey(r.Input))
	}
	if c.CheckReading == nil {
		if data.IsFinite(r.Value) {
			c.NumberStats.AddValue(r.Value)
		} else {
			c.TextCounts.AddText(r.Text)
		}
		return
	}
	why := c.CountReading(r, x.lateBeforeTime)
	if why == grid.ReasonMissing {
		return
	}
	if why == "" {
		x.lateBeforeTime = max(x.lateBeforeTime, r.Time-int64(x.query.Recipe.Grid.Lateness))
		return
	}
	text := r.Text
	if text == "" {
		text = fmt.Sprint(r.Value)
	}
	says := data.DescribeCellProblem(text, why)
	if why == grid.ReasonLate {
		says = "a previous reading is newer by more than the allowed lateness"
	}
	x.AddFault(r.Input, why, survey.DataFault{Problem: rows.FormatTime(r.Time) + ": " + says})
}

func (x *ringSurvey) finishSurvey() *survey.SourceSurvey {
	for _, c := range x.inputs {
		x.AddSentinelFault(c)
		s := c.Summary()
		if x.Columns = append(x.Columns, s); s.Used+s.Unused > 0 || x.LineCount == 0 {
			continue
		}
		f := x.AddFault(s.Name, survey.ReasonNoColumn, survey.DataFault{Problem: "no readings were recorded"})
		f.Remedy = "check data.columns and `agentd status`"
		if near := spec.ClosestSpelling(s.Name, x.UnwantedColumns, normalizeColumnName); near != "" {
			f.Remedy = fmt.Sprintf("did you mean %q, which has readings? check data.columns", near)
		}
	}
	return &x.SourceSurvey
}
