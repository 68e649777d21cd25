package data

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/fedmesh/fedmesh/spec"
)

// csvFeed is the readings of a CSV file: each line has some at its time, of the inputs that are columns.
type csvFeed struct {
	*csvFile
	follower
	said
	inputs []spec.Input
	needed []string // of these, by the task's columns
	table  *table   // of the header
	again  string   // why all readings are to be passed on once more
}

// changed implements feed.
func (f *csvFeed) changed() bool { return f.follower.changed() }

// where implements feed.
func (f *csvFeed) where(_ string, line int) string {
	return fmt.Sprintf("%s: line %d", f.csvFile.path, line)
}

// rewind implements feed.
func (f *csvFeed) rewind(why string) { f.again, f.looked = why, stamp{} } // so that it has changed

// read implements feed.
func (f *csvFeed) read(void func(why string), take func(Reading)) error {
	if !f.look() && f.again == "" {
		return nil
	}
	if f.again != "" {
		void(fmt.Sprintf("%s: %s", f.csvFile.path, f.again))
		f.follower.read, f.again = place{}, ""
	}
	to, err := f.follow(func(why string) {
		f.follower.read = place{}
		void(fmt.Sprintf("%s: %s", f.csvFile.path, why))
	}, func(text *counter, from place) (tally, error) { return f.pass(text, from, take) })
	if f.table != nil && to.cells != nil {
		all := to.report(f.csvFile.path, f.table.names, f.filter.Time)
		for _, name := range f.needed {
			if !slices.Contains(f.table.names, name) {
				all.Troubles = append(all.Troubles, Trouble{Silent, fmt.Sprintf("%s has no column for the input %q",
					f.csvFile.path, name)})
			}
		}
		f.tell(all)
	}
	if err != nil {
		f.again = "it is read again after an error"
		return err
	}
	f.follower.read = to
	return nil
}

// pass passes on the readings of a text.
func (f *csvFeed) pass(text *counter, from place, take func(Reading)) (tally, error) {
	c := f.filter.dialect.reader(text, from.lines)
	if from.offset == 0 {
		header, err := c.header(f.csvFile.path)
		if err != nil {
			return tally{}, err
		}
		if f.table, err = f.places(header); err != nil {
			return tally{}, err
		}
	}
	b := batch[float64]{tally: from.begin(len(f.table.names))}
	err := b.each(c, f.table, from.lines, func(record []string, line int) error {
		f.line(&b, record, line, take)
		return nil
	})
	return b.tally, err
}

// places says where the inputs are. A file may lack some: others may have them.
func (f *csvFeed) places(header []string) (*table, error) {
	var names []string
	for _, in := range f.inputs {
		if slices.Contains(header, f.filter.dialect.named(in.Name)) {
			names = append(names, in.Name)
		}
	}
	if len(names) == 0 {
		return nil, &Error{File: f.csvFile.path, Line: 1, Problem: "names none of the task's inputs; the columns are " +
			list(header)}
	}
	last := len(names) - 1
	return newTable(f.csvFile.path, header, names[:last], names[last], f.filter)
}

// line passes on the readings of a line.
func (f *csvFeed) line(b *batch[float64], record []string, line int, take func(Reading)) {
	b.newest = 0 // in any order: the grid knows what is late
	at, bad := b.time(f.table, record, line)
	if bad != nil {
		return
	}
	b.cells[len(f.table.columns)].use()
	for i, column := range f.table.columns {
		name, text := f.table.names[i], strings.TrimSpace(record[column])
		v, said, why := f.filter.dialect.value(f.classes(name), text)
		if why != "" {
			b.cells[i].drop(why, line)
			continue
		}
		b.cells[i].take(v, at)
		take(Reading{Input: name, Time: at, Text: said, Value: v, Line: line})
	}
}

// classes reports whether an input has classes.
func (f *csvFeed) classes(name string) bool {
	return slices.ContainsFunc(f.inputs, func(in spec.Input) bool { return in.Name == name && len(in.Classes) > 0 })
}

// each calls do with the selected rows up to the end. above is the number of lines above the first one that c reads.
func (y *tally) each(c *records, t *table, above int, do func(record []string, line int) error) error {
	c.FieldsPerRecord = t.width
	for {
		record, err := c.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return readError(t.file, err, record, t.width, above)
		}
		y.rows++
		if !t.where.match(record) {
			continue
		}
		y.matched++
		if !t.filter.deals(y.matched) {
			continue
		}
		line, _ := c.FieldPos(0)
		if err := do(record, above+line); err != nil {
			return err
		}
	}
}
