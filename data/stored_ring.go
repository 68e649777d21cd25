package data

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
)

func storedCSV(c *Config, _ store.Disk, _ string) (StoredSource, error) {
	s, err := openCSV(c)
	if err != nil {
		return nil, err
	}
	return s.(*csvFile), nil
}

func openStoredRing(c *Config, disk store.Disk, dir string) (StoredSource, error) {
	return &storedRing{disk: disk, dir: dir, rules: rulesFromConfig(c, time.Now), room: c.room()}, nil
}

// storedRing is the readings that a collector has kept.
type storedRing struct {
	disk     store.Disk
	dir      string
	rules    valueRules
	room     rowStorage
	openRows sharedRowsByKey
}

// each passes on the readings, and why some are damaged. The error is a failure to read, or errNoRing.
func (s *storedRing) each(take func(Reading), damaged func(error)) error {
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
func (s *storedRing) Open(w RowQuery) Rows {
	if w.Recipe == nil {
		return noRows{}
	}
	return s.openRows.open(w, func() *sharedRows {
		return newGridRows(&storedFeed{ring: s, wanted: w.inputs()}, w, s.rules, s.room, func() error { return nil })
	})
}

// Probe implements Source.
func (s *storedRing) Probe() error { return s.each(func(Reading) {}, func(error) {}) }

// Close implements Source.
func (s *storedRing) Close() error { return nil }

// storedFeed is the readings as they are at the first look that could read them.
type storedFeed struct {
	ring         *storedRing
	wanted       []string
	done         bool
	rewindReason string // why all readings have to be passed on again; empty = they do not
	latestReport        // damage, and the saved counts of the agent
}

func (f *storedFeed) where(string, int64) string { return f.ring.dir }

func (f *storedFeed) changed() bool { return !f.done }

// rewind implements feed.
func (f *storedFeed) rewind(why string) { f.done, f.rewindReason = false, why }

// read implements feed. Damaged readings are lost to the agent, too: they are told, and are no error.
func (f *storedFeed) read(void func(why string), take func(Reading) bool) error {
	if f.done {
		return nil
	}
	if f.rewindReason != "" {
		void(f.rewindReason)
	}
	f.done, f.rewindReason = true, ""
	var all Report
	counted, err := f.ring.loadCounts(f.wanted)
	for _, c := range counted.Columns {
		all.Columns = append(all.Columns, c.ColumnReport)
	}
	if err == nil {
		err = f.ring.each(func(r Reading) { take(r) }, func(err error) {
			if len(all.Troubles) == 0 {
				all.Troubles = []SourceTrouble{{TroubleStorage, err.Error()}}
			}
		})
	}
	f.setReport(all)
	if err != nil {
		f.rewind("it could not be read to its end")
	}
	return err
}

// Survey implements Stored. Like the agent, it reads everything again if some readings turn out to be outliers.
func (s *storedRing) Survey(w *RowQuery) *Survey {
	var outliers map[uint64]bool
	for passes := 0; ; passes++ {
		x := &ringSurvey{want: w, inputByName: map[string]*surveyedColumn{}}
		x.Source = s.dir
		if w != nil && w.Recipe != nil {
			x.order = newTimeOrder(maxLateness(w), s.rules.now(), outliers)
			for _, in := range inputsOf(w) {
				x.input(in.Name, surveyedInput(in, s.rules))
			}
		}
		err := s.each(x.take, func(err error) {
			x.fault("", Damaged, Fault{Problem: err.Error()}).Remedy = "check the disk; agentd continues " +
				"without the damaged readings"
		})
		switch {
		case errors.Is(err, errNoRing):
			x.fault("", Unrecorded, Fault{Problem: err.Error()})
		case err != nil:
			x.addReadFailure(err)
		}
		if err := x.addUnrecorded(s); err != nil {
			x.addReadFailure(err)
		}
		if x.order != nil {
			if x.order.checkTail(); x.order.foundOutliers && passes < maxRereads {
				outliers = x.order.outliers
				continue
			}
		}
		return x.end()
	}
}

// ringSurvey is a survey of readings under way.
type ringSurvey struct {
	Survey
	want        *RowQuery
	order       *timeOrder // checks the times of the readings; nil without a recipe
	inputs      []*surveyedColumn
	inputByName map[string]*surveyedColumn
	lateBefore  int64 // readings before it are late
}

// addUnrecorded adds the values that the agent has rejected since its start. They are not in the ring.
func (x *ringSurvey) addUnrecorded(s *storedRing) error {
	var wanted []string
	if x.want != nil {
		wanted = x.want.inputs()
	}
	counted, err := s.loadCounts(wanted)
	for _, c := range counted.Columns {
		for _, why := range Reasons() {
			n := int(c.Unused[why])
			if n == 0 {
				continue
			}
			problem := fmt.Sprintf("not recorded since the start of agentd at %s",
				counted.Since.UTC().Format(time.RFC3339))
			if last := c.Example(why); last.Problem != "" {
				problem += fmt.Sprintf("; the last one: %s", last)
			}
			x.fault(c.Name, why, Fault{Problem: problem}).Count += n - 1
			if of := x.inputByName[c.Name]; of != nil && why == grid.Missing {
				of.Missing += uint64(n)
			} else if of != nil {
				of.Unused += uint64(n)
			}
		}
	}
	return err
}

func (x *ringSurvey) input(name string, c *surveyedColumn) *surveyedColumn {
	x.inputs, x.inputByName[name] = append(x.inputs, c), c
	return c
}

// take takes a reading.
func (x *ringSurvey) take(r Reading) {
	x.Lines++
	c := x.inputByName[r.Input]
	if x.order != nil && x.order.classify(r.Time, r.Number) == isOutlier {
		if c != nil {
			c.Unused++
			x.fault(r.Input, grid.Future, Fault{Problem: formatTime(r.Time) +
				" is later than the readings that follow, or in the future"})
		}
		return
	}
	x.noteTime(r.Time)
	switch {
	case c == nil && (x.want != nil || len(x.inputs) == mostInputs):
		if len(x.UnwantedColumns) < mostInputs && !slices.Contains(x.UnwantedColumns, r.Input) {
			x.UnwantedColumns = append(x.UnwantedColumns, r.Input)
		}
		return
	case c == nil:
		c = x.input(r.Input, newSurveyed(r.Input))
	}
	if c.checkReading == nil {
		if finite(r.Value) {
			c.measure.take(r.Value)
		} else {
			c.texts.take(r.Text)
		}
		return
	}
	why := c.take(r, x.lateBefore)
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
	says := cellProblem(text, why)
	if why == grid.Late {
		says = "a reading came before that is newer by more than the lateness"
	}
	x.fault(r.Input, why, Fault{Problem: formatTime(r.Time) + ": " + says})
}

// end completes the survey.
func (x *ringSurvey) end() *Survey {
	for _, c := range x.inputs {
		s := c.summary()
		if x.Columns = append(x.Columns, s); s.Used+s.Unused > 0 || x.Lines == 0 {
			continue
		}
		f := x.fault(s.Name, NoColumn, Fault{Problem: "nothing was recorded"})
		f.Remedy = "see data.columns, and `agentd status`"
		if near := spec.ClosestSpelling(s.Name, x.UnwantedColumns, normalizeColumnName); near != "" {
			f.Remedy = fmt.Sprintf("did you mean %q, of which there are readings? see data.columns", near)
		}
	}
	return &x.Survey
}
