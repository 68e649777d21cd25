package data

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/spec"
)

func checkCSV(c *Config, problems *spec.Check, section string) {
	problems.Need(c.CSV != "", section+".csv", "is empty; want a CSV file with named columns")
	problems.Need(c.Lines == "" && len(c.Command) == 0 && c.Format == "", section+".source",
		"is csv, with which lines, command and format do not go: remove them")
	problems.Valid(section+".delimiter", checkDialect(c.Delimiter, c.Decimal))
	_, err := newTimeFormat(c.TimeFormat, c.TimeZone)
	problems.Valid(section+".time_format", err)
	problems.Need(c.Missing != grid.Last || c.Time != "", section+".time",
		"is empty, and missing: last needs the time of a row: name its column")
	problems.Need(c.Shares >= 0, section+".shares", "must not be negative, is %d", c.Shares)
	problems.Need(c.Share >= 0 && c.Share < max(c.Shares, 1), section+".share", "must be 0 to shares - 1, is %d of %d",
		c.Share, c.Shares)
}

func filesOfCSV(c *Config) map[string]string { return map[string]string{"csv": c.CSV} }

func openCSV(c *Config) (Source, error) {
	d, err := dialectOf(c)
	filter := Filter{Where: c.Where, Share: c.Share, Shares: c.Shares, Time: c.Time, dialect: d, missing: c.fill()}
	return &csvFile{path: c.CSV, filter: filter, most: c.maxBad(), room: c.room(), now: time.Now}, err
}

// csvFile is a CSV file with named columns, which others may append to.
type csvFile struct {
	path   string
	filter Filter
	most   float64 // of rows that cannot be used: their share
	room   room
	made   shared
	now    func() time.Time
}

// Open implements Source. Readings have a time: without a column for it, lines are rows that somebody has made, whose
// columns have the names of the task's.
func (f *csvFile) Open(w Want) Rows {
	return f.made.open(w, func() *made {
		if w.Recipe != nil && f.filter.Time != "" {
			feed := &csvFeed{csvFile: f, inputs: w.Recipe.Inputs, needed: w.inputs(),
				follower: follower{path: f.path, now: f.now}}
			return newGridRows(feed, w, f.filter.missing, f.most, f.room, func() error { return nil })
		}
		c := &csvText{csvFile: f, want: w, follower: follower{path: f.path, now: f.now}}
		return &made{maker: c, name: f.path,
			raw: &rawRows{room: f.room, features: len(w.Features), timed: f.filter.Time != ""}}
	})
}

// Close implements Source. No file is open between two calls.
func (*csvFile) Close() error { return nil }

// Probe implements Source.
func (f *csvFile) Probe() (err error) {
	r, err := OpenFile(f.path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if n, err := io.ReadFull(r, make([]byte, 1)); n == 0 && errors.Is(err, io.EOF) {
		return fmt.Errorf("%s is empty", f.path)
	} else if err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	return nil
}

// csvText makes rows of the lines of a CSV file. A call of make that fails changes nothing but looked.
type csvText struct {
	*csvFile
	follower
	said
	want  Want
	table *table // of the header
}

// changed implements maker.
func (c *csvText) changed() bool { return c.follower.changed() }

// none implements maker.
func (c *csvText) none(renewed string) error {
	err := noneSelected(c.csvFile.path, c.read.rows)
	if c.read.offset < c.looked.size && !compressed(c.csvFile.path) {
		err.Problem += ", and its last line has no line break yet"
	}
	if renewed != "" {
		err.Problem += "; " + renewed
	}
	return err
}

// make implements maker. It reads what has come since the last time, or everything if what was read then may have
// changed.
func (c *csvText) make(m *made) error {
	lost := m.raw.err()
	if !c.look() && lost == nil {
		return nil
	}
	before := c.read
	into, anew := m.raw, ""
	if lost != nil {
		c.read, into, anew = place{}, m.fresh(), lost.Error()
	}
	t, b := c.table, &batch[float32]{}
	take := func() error { return move(b, into) }
	to, err := c.follow(func(why string) { into, anew = m.fresh(), why },
		func(text *counter, from place) (tally, error) { return c.parse(text, from, &t, b, take) })
	if t != nil {
		c.tell(b.report(c.csvFile.path, t.names, c.filter.Time))
	}
	if err == nil {
		err = b.check(c.most)
	}
	if err == nil {
		err = into.flush()
	}
	switch {
	case err != nil && into == m.raw:
		into.cut(m.rows)
	case err != nil:
		into.cut(0)
	}
	if err != nil {
		c.read = before
		return err
	}
	if into != m.raw {
		if lost == nil && into.startsWith(m.raw, m.rows) {
			m.raw = into
		} else {
			m.anew(into, fmt.Sprintf("%s: %s; its rows are read anew, up to line %d", c.csvFile.path, anew, to.lines))
		}
	}
	c.read, c.table, m.rows = to, t, into.len()
	return nil
}

// batchRows is how many rows of a file are handed on at a time.
const batchRows = 512

// move moves the rows of a batch.
func move(b *batch[float32], into *rawRows) error {
	err := into.add(b.x, b.y, b.times)
	b.x, b.y, b.times = b.x[:0], b.y[:0], b.times[:0]
	return err
}

// parse reads the rows of a text into a batch, and has take empty it.
func (c *csvText) parse(text *counter, from place, t **table, b *batch[float32], take func() error) (tally, error) {
	r := c.filter.dialect.reader(text, from.lines)
	b.tally = from.begin(len(c.want.Features) + 1)
	if from.offset == 0 {
		var err error
		if *t, err = readHeader(r, c.csvFile.path, c.want.Features, c.want.Target, c.filter); err != nil {
			if bad := (*Error)(nil); c.want.Recipe != nil && errors.As(err, &bad) {
				bad.Problem += "; or if its lines are readings: name the column of their time (data.time)"
			}
			return b.tally, err
		}
	}
	err := b.each(r, *t, from.lines, func(record []string, line int) error {
		if err := b.add(*t, record, line); err != nil || len(b.y) < batchRows {
			return err
		}
		return take()
	})
	if err == nil {
		err = take()
	}
	return b.tally, err
}
