package data

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/data/grid"
)

// csvSurvey is a survey of a CSV file, or of several, under way.
type csvSurvey struct {
	Survey
	file     *csvFile
	dialect  dialect
	want     *Want // nil = all columns
	readings bool  // lines are readings, not rows

	path     string // of the file that is read
	index    int    // of it, from 0
	several  bool   // there are others
	header   []string
	columns  []*surveyed
	time     int // the place of the time; -1 = there is none
	where    conditions
	selected int
	order    *order // of the times; nil if nobody wants them
	labels   labelCount
	mark     int64 // readings before it are late
	// Hints that the dialect is another: times that cannot be read, with the number of those that can; cells that
	// are no numbers, those of them that are with the other decimal, and numbers that are not.
	times                 sample[string]
	good                  int
	strange, other, these int
}

// Survey implements Stored. As the agent, it reads all once more when lines turn out not to count.
func (f *csvFile) Survey(w *Want) *Survey {
	d := f.filter.dialect
	var changes []Change
	var ahead map[uint64]bool
	minus := false
	for passes := 0; ; {
		s := &csvSurvey{file: f, dialect: d, want: w, time: -1}
		s.Source, s.readings = f.path, w != nil && w.Recipe != nil && f.filter.Time != ""
		if w != nil && f.filter.Time != "" {
			s.order = newOrder(0, f.now(), ahead)
			if s.readings {
				s.order.lateness = int64(toleranceOf(w))
			}
		}
		if w != nil && !s.readings {
			if s.labels.LabelSet = w.Labels; minus {
				s.labels.minus, s.labels.chosen = true, true
			}
		}
		s.read()
		if len(changes) < 3 { // a delimiter, a decimal and a time format
			if c, ok := s.guess(); ok {
				changes, d, ahead, minus = append(changes, c), s.dialect, nil, false
				continue
			}
		}
		if s.order != nil {
			s.order.end()
		}
		if y := (&tally{order: s.order, labels: s.labels}); y.mistaken() && passes < rereadsMost {
			if passes++; s.order != nil {
				ahead = s.order.ahead
			}
			if s.labels.wrong() {
				minus = !s.labels.minus
			}
			continue
		}
		s.Changes = changes
		return s.end()
	}
}

// read reads the files from their beginning to their end.
func (s *csvSurvey) read() {
	paths, err := pathsOf(s.file.path)
	if err != nil {
		s.fail(err)
		return
	}
	s.several = several(s.file.path)
	for s.index, s.path = range paths {
		s.readFile()
	}
}

func (s *csvSurvey) readFile() {
	r, err := OpenFile(s.path)
	if err != nil {
		s.fail(err)
		return
	}
	defer r.Close()
	c := s.dialect.reader(r, nil)
	if s.header, err = c.header(s.path); err != nil {
		s.fail(err)
		return
	}
	s.findColumns()
	t := &table{file: s.path, filter: s.file.filter, time: s.time, where: s.where}
	t.filter.dialect = s.dialect
	if s.want == nil || t.filter.refuses() { // a survey goes on
		t.filter.missing.Policy = grid.Skip
	}
	for _, x := range s.columns {
		t.columns = append(t.columns, x.place)
	}
	y := tally{matched: s.selected}
	err = y.each(c, t, 0, func(record []string, line int) error {
		s.line(record, line, c)
		return nil
	}, func(bad *Error) { s.malformed(bad, c) })
	if err != nil {
		s.fail(fmt.Errorf("after line %d: %w", c.next, err))
	}
	s.Lines, s.selected = s.Lines+y.rows, y.matched
}

// toleranceOf returns how much older than the newest reading another one may be and still not count against it.
func toleranceOf(w *Want) time.Duration {
	lateness := w.Recipe.Grid.Lateness
	for _, in := range w.Recipe.Inputs { // labels come later
		lateness = max(lateness, w.Recipe.Grid.Lateness+in.Wait)
	}
	return lateness
}

// malformed adds the fault of a line that cannot be parsed.
func (s *csvSurvey) malformed(bad *Error, c *records) {
	f := s.fault("", grid.Malformed, s.at(Fault{Line: bad.Line, Problem: bad.Problem}))
	switch {
	case len(c.fields) == 2*len(s.header) && s.dialect.delimiter == 0:
		f.Mend = `if numbers have a decimal comma, export the file with another delimiter, such as ";"`
	case f.Mend == "":
		f.Mend = "only these lines are left out; if they are comments, set data.comment"
	}
}

// at names the file of a fault where there are several.
func (s *csvSurvey) at(f Fault) Fault {
	if s.several {
		f.File = s.path
	}
	return f
}

// findColumns says where the wanted columns are.
func (s *csvSurvey) findColumns() {
	s.where, s.time = nil, -1
	switch {
	case s.index > 0: // those of the first file
	case s.want == nil:
		for _, name := range s.header[:min(len(s.header), mostInputs)] {
			if name != "" && name != s.file.filter.Time {
				s.columns = append(s.columns, newSurveyed(name))
			}
		}
	case s.readings:
		for _, in := range inputsOf(s.want) {
			s.columns = append(s.columns, surveyedInput(in, s.file.rules()))
		}
	default:
		for i, name := range s.want.columns() {
			s.columns = append(s.columns, newSurveyed(name))
			s.columns[i].judge = s.judgeRow(name, i == len(s.want.Features))
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

// judgeRow returns what judges a number of a row.
func (s *csvSurvey) judgeRow(name string, target bool) func(Reading) (float64, Reason) {
	return func(r Reading) (float64, Reason) {
		_, why := held[float32](r.Value, "")
		switch {
		case why != "":
		case outside(r.Value, s.file.filter.ranges[name]):
			why = grid.OutOfRange
		case target && !s.labels.take(r.Value):
			why = grid.UnknownClass
		}
		return r.Value, why
	}
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
	if s.index == 0 || s.readings {
		s.fault(column, NoColumn, s.at(Fault{Line: 1, Problem: problem}))
	}
	return -1
}

// line takes a line with the right number of fields.
func (s *csvSurvey) line(record []string, line int, c *records) {
	at, good := s.when(record, line, c)
	late := false
	for _, x := range s.columns {
		if x.place < 0 {
			continue
		}
		_, column := c.FieldPos(x.place)
		late = s.cell(x, strings.TrimSpace(record[x.place]), at, good,
			s.at(Fault{Line: line, Column: column})) || late
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
	f := s.at(Fault{Line: line, Column: column})
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
	position := inOrder
	if s.order != nil {
		p := place{index: s.index}
		position = s.order.take(at, uint64(p.number(line)))
	}
	f.Problem = shorten(text)
	switch {
	case position == isAhead:
		f.Problem += " is ahead of the lines that follow, or of the clock"
		s.fault(name, grid.Future, f).Mend = "only this line is left out; correct its time if it is needed"
		return at, false
	case at > s.file.now().Add(futureMost).UnixNano():
		f.Problem += " is later than now"
		s.fault(name, grid.Future, f).Mend = "is data.time_zone right, and the clock of the device?"
	case position == isLate && !s.readings:
		s.late(line, c, f.Problem+" is before the time of a row above")
		return at, false
	}
	return at, true
}

// late adds the fault of a line that is not in order.
func (s *csvSurvey) late(line int, c *records, problem string) {
	_, column := c.FieldPos(s.time)
	f := s.fault(s.file.filter.Time, grid.Late, s.at(Fault{Line: line, Column: column, Problem: problem}))
	f.Mend = "sort the file by time"
	if z := s.dialect.time.zone; z != nil && z != time.UTC {
		f.Mend += "; of the hour that comes twice when clocks go back only the first counts"
	}
}

// cell takes a cell, whose place is in f. It reports whether its reading is late.
func (s *csvSurvey) cell(x *surveyed, text string, at int64, good bool, f Fault) (late bool) {
	v, said, why := 0.0, "", Reason("")
	if len(x.classes) > 0 && text != "" {
		if said = text; s.dialect.absent.Text(text) && !slices.Contains(x.Texts, text) {
			why = grid.Missing
		}
	} else {
		v, why = s.dialect.number(text)
	}
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
