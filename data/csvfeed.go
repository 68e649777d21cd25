package data

import (
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strings"

	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/spec"
)

// csvFeed is the readings of a CSV file: each line has some at its time, of the inputs that are columns.
type csvFeed struct {
	*csvFile
	follower
	said
	inputs []spec.Input
	needed []string // of these, by the task's columns
	again  string   // why all readings are to be passed on once more
}

// changed implements feed.
func (f *csvFeed) changed() bool { return f.follower.changed() }

// where implements feed.
func (f *csvFeed) where(_ string, line int64) string { return f.follower.read.where(line) }

// rewind implements feed.
func (f *csvFeed) rewind(why string) { f.again, f.looked = why, nil } // so that it has changed

// read implements feed.
func (f *csvFeed) read(void func(why string), take func(Reading) bool) error {
	if !f.look() && f.again == "" {
		return nil
	}
	if f.again != "" {
		void(fmt.Sprintf("%s: %s", f.csvFile.path, f.again))
		f.follower.read, f.again = progress{}, ""
	}
	to, err := f.follow(func(why string) {
		f.follower.read = progress{}
		void(fmt.Sprintf("%s: %s", f.csvFile.path, why))
	}, func(text *counter, at *place, y *readState) error { return f.pass(text, at, y, take) })
	if to.cells != nil {
		all := to.report(f.inputNames(), f.filter.Time)
		for i := len(all.Columns) - 1; i >= 0; i-- {
			if c := all.Columns[i]; i < len(f.inputs) && !to.hasColumn(i) {
				all.Columns = slices.Delete(all.Columns, i, i+1)
				if slices.Contains(f.needed, c.Name) {
					all.Troubles = append(all.Troubles, Trouble{Silent, fmt.Sprintf(
						"%s has no column for the input %q", f.csvFile.path, c.Name)})
				}
			}
		}
		slices.Reverse(all.Troubles)
		f.tell(all)
	}
	if err != nil {
		f.again = "it is read again after an error"
		return err
	}
	f.follower.read = to
	return nil
}

// inputNames returns the names of the inputs.
func (f *csvFeed) inputNames() (all []string) {
	for _, in := range f.inputs {
		all = append(all, in.Name)
	}
	return all
}

// hasColumn reports whether at least one file has a column for the input with this index.
func (p *progress) hasColumn(input int) bool {
	return slices.ContainsFunc(p.files, func(f place) bool {
		return f.table != nil && f.table.broken == "" && f.table.columns[input] >= 0
	})
}

// pass passes on the readings of a text.
func (f *csvFeed) pass(text *counter, at *place, y *readState, take func(Reading) bool) error {
	c := f.filter.dialect.reader(text, at)
	y.begin(len(f.inputs))
	if at.offset == 0 {
		header, err := c.header(at.stamp.path)
		if err != nil {
			return err
		}
		if at.table, err = f.places(at.stamp.path, header); err != nil {
			return err
		}
		at.table.delimiter = c.delimiter
	}
	return y.eachRow(c, at, func(header []string) (*table, error) {
		return f.places(at.stamp.path, header)
	}, func(record []string, line int) error {
		f.line(at, y, record, line, take)
		return nil
	}, func(bad *Error) {
		for i := range f.inputs {
			if at.table.broken != "" || at.table.columns[i] >= 0 {
				y.cells[i].drop(rejectedCell{bad.File, bad.Line, bad.Problem, grid.Malformed})
			}
		}
	})
}

// places says where the inputs are. A file may lack some: others may have them.
func (f *csvFeed) places(file string, header []string) (*table, error) {
	t, err := newTable(file, header, nil, "", f.filter)
	if err != nil {
		return nil, err
	}
	found := false
	for _, in := range f.inputs {
		at, err := t.find(f.filter.dialect.named(in.Name))
		if err != nil && slices.Contains(header, f.filter.dialect.named(in.Name)) {
			return nil, err
		}
		t.names, t.columns, found = append(t.names, in.Name), append(t.columns, at), found || at >= 0
		t.texts = append(t.texts, len(in.Classes) > 0)
	}
	if !found {
		names := make([]string, 0, len(f.needed))
		for _, name := range f.needed {
			names = append(names, f.filter.dialect.named(name))
		}
		return nil, &Error{File: file, Line: 1, Problem: "names none of the task's inputs; the columns are " +
			list(header) + f.filter.dialect.headerHint(file, names)}
	}
	return t, nil
}

// line passes on the readings of a line.
func (f *csvFeed) line(place *place, y *readState, record []string, line int, take func(Reading) bool) {
	t := place.table
	at, bad := y.time(t, record, line)
	if bad != nil {
		return
	}
	y.cells[len(t.columns)].use()
	source := t.lineSource(record)
	number := place.number(line)
	if take(Reading{Time: at, Number: uint64(number)}) { // even if the line has no value
		y.newest = max(y.newest, at)
	}
	for i, column := range t.columns {
		if column < 0 {
			continue
		}
		text := strings.TrimSpace(record[column])
		r := Reading{Input: t.names[i], Time: at, Source: source, Line: number, Number: uint64(number)}
		why := Reason("")
		if len(f.inputs[i].Classes) > 0 {
			r.Text, r.Value = f.filter.dialect.classCell(text, f.inputs[i].Classes)
		} else {
			r.Value, why = f.filter.dialect.number(text)
		}
		if why == "" && text == "" {
			why = grid.Missing
		}
		if why != "" {
			y.cells[i].drop(rejectedCell{t.file, line, text, why})
			continue
		}
		y.cells[i].take(r.Value, at)
		take(r)
	}
}

// lineSource returns a hash of the columns that are neither the time nor an input. A file may contain several meters
// and have the meter's name in such a column, so two lines with the same time are duplicates only if their hashes are
// equal.
func (t *table) lineSource(record []string) uint64 {
	h := fnv.New64a()
	for i, text := range record {
		if i != t.time && !slices.Contains(t.columns, i) {
			_, _ = io.WriteString(h, text+"\x00") // a hash never returns an error
		}
	}
	return h.Sum64()
}
