package data

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
)

func storedCSV(c *Config, _ store.Disk, _ string) (Stored, error) {
	s, err := openCSV(c)
	if err != nil {
		return nil, err
	}
	return s.(*csvFile), nil
}

func storedReadings(c *Config, disk store.Disk, dir string) (Stored, error) {
	return &storedRing{disk: disk, dir: dir, fill: c.fill(), most: c.maxBad(), room: c.room()}, nil
}

// storedRing is the readings that a collector has kept.
type storedRing struct {
	disk store.Disk
	dir  string
	fill grid.Fill
	most float64 // of an input's values that are wrong: their share
	room room
	made shared
}

// each passes on the readings, and why some are damaged. The error is a failure to read, or errNoRing.
func (s *storedRing) each(take func(Reading), damaged func(error)) error {
	err := s.disk.ReadRing(s.dir, func(b store.Batch) {
		if err := decode(b.Body, take); err != nil {
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
func (s *storedRing) Open(w Want) Rows {
	if w.Recipe == nil {
		return noRows{}
	}
	return s.made.open(w, func() *made {
		return newGridRows(&storedFeed{ring: s}, w, s.fill, s.most, s.room, func() error { return nil })
	})
}

// Probe implements Source.
func (s *storedRing) Probe() error { return s.each(func(Reading) {}, func(error) {}) }

// Close implements Source.
func (s *storedRing) Close() error { return nil }

// storedFeed is the readings as they are at the first look that could read them.
type storedFeed struct {
	ring  *storedRing
	done  bool
	again string // why they are to be passed on once more
	said         // damage: what was not recorded is not in the ring
}

func (f *storedFeed) where(string, int) string { return f.ring.dir }

func (f *storedFeed) changed() bool { return !f.done }

// rewind implements feed.
func (f *storedFeed) rewind(why string) { f.done, f.again = false, why }

// read implements feed. Damaged readings are lost to the agent, too: they are told, and are no error.
func (f *storedFeed) read(void func(why string), take func(Reading)) error {
	if f.done {
		return nil
	}
	if f.again != "" {
		void(f.again)
	}
	f.done, f.again = true, ""
	var all Report
	err := f.ring.each(take, func(err error) {
		if len(all.Troubles) == 0 {
			all.Troubles = []Trouble{{Storage, err.Error()}}
		}
	})
	f.tell(all)
	if err != nil {
		f.rewind("it could not be read to its end")
	}
	return err
}

// Survey implements Stored.
func (s *storedRing) Survey(w *Want) *Survey {
	x := &ringSurvey{want: w, by: map[string]*surveyed{}}
	x.Source = s.dir
	if w != nil && w.Recipe != nil {
		for _, in := range inputsOf(w) {
			x.input(in.Name, surveyedInput(in))
		}
	}
	err := s.each(x.take, func(err error) {
		x.fault("", Damaged, Fault{Problem: err.Error()}).Mend = "examine the disk; agentd goes on without"
	})
	switch {
	case errors.Is(err, errNoRing):
		x.fault("", Unrecorded, Fault{Problem: err.Error()})
	case err != nil:
		x.fail(err)
	}
	return x.end()
}

// ringSurvey is a survey of readings under way.
type ringSurvey struct {
	Survey
	want   *Want
	inputs []*surveyed
	by     map[string]*surveyed
	mark   int64 // readings before it are late
}

func (x *ringSurvey) input(name string, c *surveyed) *surveyed {
	x.inputs, x.by[name] = append(x.inputs, c), c
	return c
}

// take takes a reading.
func (x *ringSurvey) take(r Reading) {
	x.Lines++
	x.spoke(r.Time)
	c := x.by[r.Input]
	switch {
	case c == nil && (x.want != nil || len(x.inputs) == mostInputs):
		if len(x.Others) < mostInputs && !slices.Contains(x.Others, r.Input) {
			x.Others = append(x.Others, r.Input)
		}
		return
	case c == nil:
		c = x.input(r.Input, newSurveyed(r.Input))
	}
	if c.judge == nil {
		if finite(r.Value) {
			c.measure.take(r.Value)
		} else {
			c.texts.take(r.Text)
		}
		return
	}
	why := c.take(r, x.mark)
	if why == "" {
		x.mark = max(x.mark, r.Time-int64(x.want.Recipe.Grid.Lateness))
		return
	}
	text := r.Text
	if text == "" {
		text = fmt.Sprint(r.Value)
	}
	says := problem(text, why)
	if why == grid.Late {
		says = "a reading came before that is newer by more than the lateness"
	}
	x.fault(r.Input, why, Fault{Problem: moment(r.Time) + ": " + says})
}

// end completes the survey.
func (x *ringSurvey) end() *Survey {
	for _, c := range x.inputs {
		s := c.summary()
		if x.Columns = append(x.Columns, s); s.Used+s.Unused > 0 || x.Lines == 0 {
			continue
		}
		f := x.fault(s.Name, NoColumn, Fault{Problem: "nothing was recorded"})
		f.Mend = "see data.columns, and `agentd status`"
		if near := spec.Closest(s.Name, x.Others, foldColumn); near != "" {
			f.Mend = fmt.Sprintf("did you mean %q, of which there are readings? see data.columns", near)
		}
	}
	return &x.Survey
}
