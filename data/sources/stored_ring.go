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
	return &storedRing{disk: disk, dir: dir, rules: rows.RulesFromConfig(c, time.Now), room: rows.StorageOf(c)}, nil
}

// storedRing is the readings that a collector has kept.
type storedRing struct {
	disk     store.Disk
	dir      string
	rules    rows.ValueRules
	room     rows.Storage
	openRows rows.SharedByKey
}

// each passes on the readings, and why some are damaged. The error is a failure to read, or errNoRing.
func (s *storedRing) each(take func(data.Reading), damaged func(error)) error {
	err := s.disk.ReadRing(s.dir, func(first uint64, b store.RingBatch) {
		if err := decode(b.Body, first, take); err != nil {
			damaged(fmt.Errorf("%s: %w", s.dir, err))
		}
	}, damaged)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", s.dir, errNoRing)
	}
	return err
}

var errNoRing = errors.New("nothing was recorded yet: the agent makes it when it runs")

// Open implements Source.
func (s *storedRing) Open(w data.RowQuery) data.Rows {
	if w.Recipe == nil {
		return noRows{}
	}
	return s.openRows.Open(w, func() *rows.Shared {
		return rows.NewGridRows(&storedFeed{ring: s, wanted: w.Inputs()}, w, s.rules, s.room,
			func() error { return nil })
	})
}

// Probe implements Source.
func (s *storedRing) Probe() error { return s.each(func(data.Reading) {}, func(error) {}) }

// Close implements Source.
func (s *storedRing) Close() error { return nil }

// storedFeed is the readings as they are at the first look that could read them.
type storedFeed struct {
	ring              *storedRing
	wanted            []string
	done              bool
	rewindReason      string // why all readings have to be passed on again; empty = they do not
	data.LatestReport        // damage, and the saved counts of the agent
}

func (f *storedFeed) Where(string, int64) string { return f.ring.dir }

func (f *storedFeed) Changed() bool { return !f.done }

// Rewind implements rows.Feed.
func (f *storedFeed) Rewind(why string) { f.done, f.rewindReason = false, why }

// Read implements rows.Feed. Damaged readings are lost to the agent, too: they are told, and are no error.
func (f *storedFeed) Read(restart func(why string), take func(data.Reading) bool) error {
	if f.done {
		return nil
	}
	if f.rewindReason != "" {
		restart(f.rewindReason)
	}
	f.done, f.rewindReason = true, ""
	var all data.Report
	counted, err := loadCounts(f.ring.disk, f.ring.dir, f.wanted)
	for _, c := range counted.Columns {
		all.Columns = append(all.Columns, c.ColumnReport)
	}
	if err == nil {
		err = f.ring.each(func(r data.Reading) { take(r) }, func(err error) {
			if len(all.Troubles) == 0 {
				all.Troubles = []data.SourceTrouble{{Kind: data.TroubleStorage, Text: err.Error()}}
			}
		})
	}
	f.SetReport(all)
	if err != nil {
		f.Rewind("it could not be read to its end")
	}
	return err
}

// Survey implements StoredSource. Like the agent, it reads everything again if some readings turn out to be outliers.
func (s *storedRing) Survey(w *data.RowQuery) *survey.Survey {
	var outliers map[uint64]bool
	for passes := 0; ; passes++ {
		x := &ringSurvey{want: w, inputByName: map[string]*survey.Column{}}
		x.Source = s.dir
		if w != nil && w.Recipe != nil {
			x.order = rows.NewTimeOrder(rows.MaxLateness(w.Recipe), s.rules.Now(), outliers)
			for _, in := range survey.InputsOf(w) {
				x.input(in.Name, survey.NewInputColumn(in, s.rules))
			}
		}
		err := s.each(x.take, func(err error) {
			x.AddFault("", survey.Damaged,
				survey.Fault{Problem: err.Error()}).Remedy = "check the disk; agentd continues " +
				"without the damaged readings"
		})
		switch {
		case errors.Is(err, errNoRing):
			x.AddFault("", survey.Unrecorded, survey.Fault{Problem: err.Error()})
		case err != nil:
			x.AddReadFailure(err)
		}
		if err := x.addUnrecorded(s); err != nil {
			x.AddReadFailure(err)
		}
		if x.order != nil {
			if x.order.CheckTail(); x.order.FoundOutliers && passes < rows.MaxRereads {
				outliers = x.order.Outliers
				continue
			}
		}
		return x.end()
	}
}

// ringSurvey is a survey of readings under way.
type ringSurvey struct {
	survey.Survey
	want        *data.RowQuery
	order       *rows.TimeOrder // checks the times of the readings; nil without a recipe
	inputs      []*survey.Column
	inputByName map[string]*survey.Column
	lateBefore  int64 // readings before it are late
}

// addUnrecorded adds the values that the agent has rejected since its start. They are not in the ring.
func (x *ringSurvey) addUnrecorded(s *storedRing) error {
	var wanted []string
	if x.want != nil {
		wanted = x.want.Inputs()
	}
	counted, err := loadCounts(s.disk, s.dir, wanted)
	for _, c := range counted.Columns {
		for _, why := range data.Reasons() {
			n := int(c.Unused[why])
			if n == 0 {
				continue
			}
			problem := fmt.Sprintf("not recorded since the start of agentd at %s",
				counted.Since.UTC().Format(time.RFC3339))
			if last := c.Example(why); last.Problem != "" {
				problem += fmt.Sprintf("; the last one: %s", last)
			}
			x.AddFault(c.Name, why, survey.Fault{Problem: problem}).Count += n - 1
			if of := x.inputByName[c.Name]; of != nil && why == grid.Missing {
				of.Missing += uint64(n)
			} else if of != nil {
				of.Unused += uint64(n)
			}
		}
	}
	return err
}

func (x *ringSurvey) input(name string, c *survey.Column) *survey.Column {
	x.inputs, x.inputByName[name] = append(x.inputs, c), c
	return c
}

// take takes a reading.
func (x *ringSurvey) take(r data.Reading) {
	x.Lines++
	c := x.inputByName[r.Input]
	if x.order != nil && x.order.Classify(r.Time, r.Number) == rows.Outlier {
		if c != nil {
			c.Unused++
			x.AddFault(r.Input, grid.Future, survey.Fault{Problem: rows.FormatTime(r.Time) +
				" is later than the readings that follow, or in the future"})
		}
		return
	}
	x.NoteTime(r.Time)
	switch {
	case c == nil && (x.want != nil || len(x.inputs) == mostInputs):
		if len(x.UnwantedColumns) < mostInputs && !slices.Contains(x.UnwantedColumns, r.Input) {
			x.UnwantedColumns = append(x.UnwantedColumns, r.Input)
		}
		return
	case c == nil:
		c = x.input(r.Input, survey.NewColumn(r.Input))
	}
	if c.CheckReading == nil {
		if data.IsFinite(r.Value) {
			c.Measure.Take(r.Value)
		} else {
			c.TextCounts.Take(r.Text)
		}
		return
	}
	why := c.Take(r, x.lateBefore)
	if why == grid.Missing {
		return
	}
	if why == "" {
		x.lateBefore = max(x.lateBefore, r.Time-int64(x.want.Recipe.Grid.Lateness))
		return
	}
	text := r.Text
	if text == "" {
		text = fmt.Sprint(r.Value)
	}
	says := data.CellProblem(text, why)
	if why == grid.Late {
		says = "a reading came before that is newer by more than the lateness"
	}
	x.AddFault(r.Input, why, survey.Fault{Problem: rows.FormatTime(r.Time) + ": " + says})
}

// end completes the survey.
func (x *ringSurvey) end() *survey.Survey {
	for _, c := range x.inputs {
		s := c.Summary()
		if x.Columns = append(x.Columns, s); s.Used+s.Unused > 0 || x.Lines == 0 {
			continue
		}
		f := x.AddFault(s.Name, survey.NoColumn, survey.Fault{Problem: "nothing was recorded"})
		f.Remedy = "see data.columns, and `agentd status`"
		if near := spec.ClosestSpelling(s.Name, x.UnwantedColumns, normalizeColumnName); near != "" {
			f.Remedy = fmt.Sprintf("did you mean %q, of which there are readings? see data.columns", near)
		}
	}
	return &x.Survey
}
