package data

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/data/grid"
)

// csvSurvey is a survey of a CSV file under way.
type csvSurvey struct {
	Survey
	file     *csvFile
	dialect  dialect
	want     *Want // nil = all columns
	readings bool  // lines are readings, not rows

	header   []string
	columns  []*surveyed
	time     int // the place of the time; -1 = there is none
	where    conditions
	selected int
	newest   int64 // time of a row
	mark     int64 // readings before it are late
	// Hints that the dialect is another: times that cannot be read, with the number of those that can; cells that
	// are no numbers, those of them that are with the other decimal, and numbers that are not.
	times                 sample[string]
	good                  int
	strange, other, these int
}

// Survey implements Stored.
func (f *csvFile) Survey(w *Want) *Survey {
	d := f.filter.dialect
	var changes []Change
	for {
		s := &csvSurvey{file: f, dialect: d, want: w, time: -1}
		s.Source, s.readings = f.path, w != nil && w.Recipe != nil && f.filter.Time != ""
		s.read()
		if len(changes) < 3 { // a delimiter, a decimal and a time format
			if c, ok := s.guess(); ok {
				changes, d = append(changes, c), s.dialect
				continue
			}
		}
		s.Changes = changes
		return s.end()
	}
}

// read reads the file from its beginning to its end.
func (s *csvSurvey) read() {
	r, err := OpenFile(s.file.path)
	if err != nil {
		s.fail(err)
		return
	}
	defer r.Close()
	c := s.dialect.reader(r, 0)
	if s.header, err = c.header(s.file.path); err != nil {
		s.fail(err)
		return
	}
	s.findColumns()
	c.FieldsPerRecord = -1
	for {
		record, err := c.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		var parse *csv.ParseError
		if err != nil && !errors.As(err, &parse) {
			s.fail(fmt.Errorf("after line %d: %w", s.Lines+1, err))
			return
		}
		s.Lines++
		if err != nil {
			s.fault("", grid.Malformed, Fault{parse.Line, parse.Column, parse.Err.Error()})
			continue
		}
		line, _ := c.FieldPos(0)
		if len(record) != len(s.header) {
			s.width(len(record), line)
			continue
		}
		s.line(record, line, c)
	}
}

// width adds the fault of a line with a wrong number of fields.
func (s *csvSurvey) width(n, line int) {
	f := s.fault("", grid.Malformed, Fault{Line: line,
		Problem: fmt.Sprintf("%d fields where the header has %d", n, len(s.header))})
	if n == 2*len(s.header) && s.dialect.delimiter == 0 {
		f.Mend = `if numbers have a decimal comma, export the file with another delimiter, such as ";"`
	}
}

// findColumns says where the wanted columns are.
func (s *csvSurvey) findColumns() {
	switch {
	case s.want == nil:
		for _, name := range s.header[:min(len(s.header), mostInputs)] {
			if name != "" && name != s.file.filter.Time {
				s.columns = append(s.columns, newSurveyed(name))
			}
		}
	case s.readings:
		for _, in := range inputsOf(s.want) {
			s.columns = append(s.columns, surveyedInput(in))
		}
	default:
		for _, name := range s.want.columns() {
			s.columns = append(s.columns, newSurveyed(name))
			s.columns[len(s.columns)-1].judge = float32Of
		}
	}
	wanted := map[string]bool{}
	for _, c := range s.columns {
		name := c.Name
		if s.want != nil {
			name = s.dialect.named(c.Name)
		}
		if c.place = s.find(c.Name, name); name != c.Name {
			c.In = name
		}
		wanted[name] = true
	}
	if name := s.file.filter.Time; name != "" {
		s.time = s.find(name, name)
		wanted[name] = true
	}
	for _, name := range sortedKeys(s.file.filter.Where) {
		if at := s.find(name, name); at >= 0 {
			s.where = append(s.where, condition{at, s.file.filter.Where[name]})
		}
	}
	for _, name := range s.header {
		if !wanted[name] && len(s.Others) < mostInputs {
			s.Others = append(s.Others, name)
		}
	}
}

// float32Of judges a number of a row.
func float32Of(r Reading) (float64, Reason) {
	_, why := held[float32](r.Value, "")
	return r.Value, why
}

// find returns the place of a column in the file, or adds why it is not there.
func (s *csvSurvey) find(column, name string) int {
	at := slices.Index(s.header, name)
	problem := ""
	switch {
	case at < 0:
		problem = "the header has no column " + shorten(name)
	case slices.Contains(s.header[at+1:], name) && s.want != nil:
		problem = "the header has the column " + shorten(name) + " twice"
	default:
		return at
	}
	s.fault(column, NoColumn, Fault{Line: 1, Problem: problem})
	return -1
}

// line takes a line with the right number of fields.
func (s *csvSurvey) line(record []string, line int, c *records) {
	if !s.where.match(record) {
		return
	}
	s.selected++
	if !s.file.filter.deals(s.selected) {
		return
	}
	at, good := s.when(record, line, c)
	late := false
	for _, x := range s.columns {
		if x.place < 0 {
			continue
		}
		_, column := c.FieldPos(x.place)
		late = s.cell(x, strings.TrimSpace(record[x.place]), at, good, Fault{Line: line, Column: column}) || late
	}
	if late {
		s.late(line, c, shorten(strings.TrimSpace(record[s.time]))+
			" is older than a line above by more than the lateness")
	}
}

// when reads the time of a line.
func (s *csvSurvey) when(record []string, line int, c *records) (at int64, good bool) {
	if s.time < 0 {
		return 0, true
	}
	text, name := strings.TrimSpace(record[s.time]), s.file.filter.Time
	_, column := c.FieldPos(s.time)
	at, err := s.dialect.time.parse(text)
	f := Fault{Line: line, Column: column}
	if err != nil {
		f.Problem = shorten(text) + " is not a time " + s.dialect.time.example()
		s.fault(name, grid.BadTime, f)
		if text != "" {
			s.times.take(strings.Clone(text)) // a cell holds its record
		}
		return 0, false
	}
	s.good++
	s.spoke(at)
	f.Problem = shorten(text)
	switch {
	case at > s.file.now().Add(futureMost).UnixNano():
		f.Problem += " is later than now"
		s.fault(name, grid.Future, f).Mend = "is data.time_zone right, and the clock of the device?"
	case s.want != nil && !s.readings && at < s.newest:
		s.late(line, c, f.Problem+" is before the time of a row above")
		return at, false
	}
	s.newest = max(s.newest, at)
	return at, true
}

// late adds the fault of a line that is not in order.
func (s *csvSurvey) late(line int, c *records, problem string) {
	_, column := c.FieldPos(s.time)
	f := s.fault(s.file.filter.Time, grid.Late, Fault{line, column, problem})
	f.Mend = "sort the file by time"
	if z := s.dialect.time.zone; z != nil && z != time.UTC {
		f.Mend += "; of the hour that comes twice when clocks go back only the first counts"
	}
}

// cell takes a cell, whose place is in f. It reports whether its reading is late.
func (s *csvSurvey) cell(x *surveyed, text string, at int64, good bool, f Fault) (late bool) {
	v, said, why := s.dialect.value(len(x.classes) > 0, text)
	if why == grid.Missing {
		if x.Missing++; s.want != nil && !s.readings {
			f.Problem = problem(text, why)
			s.fault(x.Name, why, f)
		}
		return false
	}
	s.decimal(text, why)
	switch {
	case why != "":
		if x.Unused++; x.judge == nil {
			x.texts.take(text)
		}
	case x.judge == nil:
		x.measure.take(v)
	case !good:
		x.Unused++ // which was told of the time
	default:
		why = x.take(Reading{Input: x.Name, Time: at, Text: said, Value: v}, s.mark)
		if why == "" && s.readings {
			s.mark = max(s.mark, at-int64(s.want.Recipe.Grid.Lateness))
		}
	}
	if why != "" && why != grid.Late {
		f.Problem = problem(text, why)
		s.fault(x.Name, why, f)
	}
	return why == grid.Late
}

// end completes the survey.
func (s *csvSurvey) end() *Survey {
	for _, x := range s.columns {
		if x.place >= 0 {
			s.Columns = append(s.Columns, x.summary())
		}
		if x.ofTexts() { // then a text is none of its faults
			s.Faults = slices.DeleteFunc(s.Faults, func(f *Faults) bool { return f.Column == x.Name })
		}
	}
	if s.selected == 0 && s.Lines > 0 && len(s.where) > 0 {
		s.fault("", NoColumn, Fault{Problem: fmt.Sprintf("none of the %d lines has the texts of data.where", s.Lines)})
	}
	s.mend()
	return &s.Survey
}
