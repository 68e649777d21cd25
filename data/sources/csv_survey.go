package sources

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/data/rows"
	"github.com/fedmesh/fedmesh/data/survey"
	"github.com/fedmesh/fedmesh/store"
)

// csvSurvey is the state of a survey of one or several CSV files.
type csvSurvey struct {
	survey.SourceSurvey
	file             *csvFile
	dialect          csvDialect
	query            *data.RowQuery // query of a task; nil means all columns
	linesAreReadings bool           // whether lines are readings and not rows

	currentFilePath  string         // path of the current file
	currentFileIndex int            // index of the current file, from 0
	table            *columnMapping // column mapping of the current header
	mayHaveManyFiles bool           // whether the source may consist of several files
	usableFileCount  int            // number of files with a usable header
	// noAddedColumnsByPath contains the paths of files in which lines with more fields have no added column.
	noAddedColumnsByPath         map[string]bool
	foundFileWithoutAddedColumns bool  // true once noAddedColumnsByPath was extended
	newestTimeInFile             int64 // newest time in the current file
	header                       []string
	columns                      []*survey.ColumnSurvey
	selectedRowCount             int
	order                        *rows.TimeOrderCheck // check of the times; nil without a task or a time column
	targetFilter                 rows.TargetFilter
	lateBeforeTime               int64 // readings before this time are late
	// The fields below are evidence for a different dialect: times that cannot be parsed, the number of valid times,
	// and the numbers of cells that are not numbers, that are numbers with the other decimal separator, and that are
	// numbers with the current decimal separator.
	unreadableTimes                                 survey.ReservoirSample[string]
	readableTimeCount                               int
	nonNumbers, otherDecimalCells, thisDecimalCells int
}

// Survey implements survey.StoredSource. Like the agent, it reads everything again if some lines turn out to be
// invalid.
func (f *csvFile) Survey(w *data.RowQuery) *survey.SourceSurvey {
	d := f.filter.dialect
	var changes []survey.SuggestedConfigChange
	var outliers map[uint64]bool
	fixed := map[string]bool{}
	labels := rows.TargetFilter{}
	if w == nil {
		d.fileColumnByTaskColumn = nil // without a task, all columns have the names of the file
	} else {
		labels.LabelSet = w.Labels
	}
	for passes := 0; ; {
		s := &csvSurvey{file: f, dialect: d, query: w, noAddedColumnsByPath: fixed}
		s.SourcePath, s.linesAreReadings = f.path, w != nil && w.Recipe != nil && f.filter.TimeColumn != ""
		if w != nil && f.filter.TimeColumn != "" {
			s.order = rows.NewTimeOrderCheck(0, f.now(), outliers)
			if s.linesAreReadings {
				s.order.Lateness = int64(rows.MaxLateness(w.Recipe))
			}
		}
		if w != nil && !s.linesAreReadings {
			s.targetFilter = labels
		}
		if s.surveyFiles(); s.foundFileWithoutAddedColumns {
			continue
		}
		if len(changes) < 3 { // at most one change each of delimiter, decimal separator and time format
			if c, ok := s.guessConfigChange(); ok {
				changes, d, outliers = append(changes, c), s.dialect, nil
				clear(fixed)
				labels = rows.TargetFilter{LabelSet: labels.LabelSet}
				continue
			}
		}
		if s.order != nil {
			s.order.MarkFutureTailAsOutliers()
		}
		if rows.NeedsReread(s.order, &s.targetFilter) && passes < rows.MaxUnconditionalRereads {
			if passes++; s.order != nil {
				outliers = s.order.Outliers
			}
			labels = s.targetFilter.FilterForNextPass()
			continue
		}
		s.ConfigChanges = changes
		return s.finishSurvey()
	}
}

func (s *csvSurvey) surveyFiles() {
	paths, err := expandPath(s.file.path)
	if err != nil {
		s.AddReadFailure(err)
		return
	}
	s.mayHaveManyFiles = mayMatchManyFiles(s.file.path)
	for s.currentFileIndex, s.currentFilePath = range paths {
		s.surveyCurrentFile(s.currentFileIndex == len(paths)-1)
	}
}

// surveyCurrentFile surveys the current file. last is true if the file is the last one, to which other programs may
// still append.
func (s *csvSurvey) surveyCurrentFile(last bool) {
	r, err := OpenTextFile(s.currentFilePath)
	if err != nil {
		s.AddReadFailure(err)
		return
	}
	defer r.Close()
	c := s.dialect.newRecordReader(r, nil)
	c.forbidsAddedColumns, c.isTextComplete = s.noAddedColumnsByPath[s.currentFilePath],
		!last || !r.(textFileReader).isPlainText
	y, at := csvReadCounts{matched: s.selectedRowCount}, readPosition{stamp: fileStamp{path: s.currentFilePath}}
	s.newestTimeInFile = 0
	err = y.forEachRow(c, &at, func(header []string) (*columnMapping, error) {
		t, err := s.findWantedColumns(header)
		switch {
		case at.table != nil || err != nil && s.mayHaveManyFiles:
			return t, err
		case err == nil:
			s.usableFileCount++
		}
		return t, nil
	}, func(record []string, line int) error {
		s.surveyRecord(record, line, c)
		return nil
	}, func(bad *data.FileError) { s.addMalformedLine(bad, c) })
	if at.table == nil {
		if !errors.Is(err, errUnusableHeader) {
			s.AddReadFailure(err)
		}
		return
	}
	if errors.Is(err, errNoColumnsAdded) {
		s.foundFileWithoutAddedColumns, s.noAddedColumnsByPath[s.currentFilePath] = true, true
	}
	if at.widenedAtLine > 0 {
		s.AddFault("", survey.ReasonAddedFields, s.withCurrentFile(survey.DataFault{Line: at.widenedAtLine,
			Problem: describeAddedFields(at.fieldCount, len(s.header))})).Remedy = addedFieldsAdvice
	}
	if err = cmp.Or(err, at.readErr); err != nil {
		s.AddReadFailure(fmt.Errorf("after line %d: %w", c.readLineCount, err))
	}
	s.LineCount, s.selectedRowCount = s.LineCount+y.rows, y.matched
}

// addMalformedLine adds a fault for a line that cannot be parsed.
func (s *csvSurvey) addMalformedLine(bad *data.FileError, c *csvRecordReader) {
	f := s.AddFault("", grid.ReasonMalformed, s.withCurrentFile(survey.DataFault{Line: bad.Line, Problem: bad.Problem}))
	switch {
	case strings.HasPrefix(bad.Problem, cutOffPrefix):
		f.Remedy = cmp.Or(f.Remedy, "only these lines are skipped: they were probably truncated by a power failure")
	case c.insertedFieldNumber > 0 && len(c.fields) > c.fieldCount:
		f.Remedy = addedFieldsAdvice
	case s.dialect.delimiter == 0 && (!c.sawHeaderWidth || f.Count > 2) && hasDecimalCommas(c.fields, len(s.header)):
		f.Remedy = `if numbers have a decimal comma, export the file with another delimiter, such as ";"`
	case f.Remedy == "" && len(c.fields) > 1 && len(c.fields) < len(s.header):
		f.Remedy = "only these lines are skipped; write a delimiter for each empty cell"
	case f.Remedy == "":
		f.Remedy = "only these lines are skipped; if they are comments, set data.comment"
	}
}

// hasDecimalCommas reports whether a record has too many fields only because numbers with a decimal comma were split in
// two fields.
func hasDecimalCommas(record []string, want int) bool {
	isDigits := func(s string) bool {
		return s != "" && strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' }) < 0
	}
	pairs := 0
	for i := 0; i+1 < len(record); i++ {
		whole := strings.TrimLeft(strings.TrimSpace(record[i]), "+-")
		if isDigits(whole) && isDigits(strings.TrimSpace(record[i+1])) {
			pairs++
			i++
		}
	}
	return len(record) > want && pairs >= len(record)-want
}

// withCurrentFile returns the fault with the name of the current file, if the source may have several files.
func (s *csvSurvey) withCurrentFile(f survey.DataFault) survey.DataFault {
	if s.mayHaveManyFiles {
		f.File = s.currentFilePath
	}
	return f
}

// findWantedColumns returns the mapping of the required columns in a header. It adds a fault for each missing column.
// The error is errUnusableHeader if the agent cannot use lines with this header.
func (s *csvSurvey) findWantedColumns(header []string) (*columnMapping, error) {
	s.header = header
	switch {
	case len(s.columns) > 0: // keep the columns of the first header
	case s.query == nil:
		for _, name := range header[:min(len(header), maxSourceInputs)] {
			if name != "" && name != s.file.filter.TimeColumn {
				s.columns = append(s.columns, survey.NewColumnSurvey(name))
			}
		}
	case s.linesAreReadings:
		for _, in := range survey.NeededInputs(s.query) {
			s.columns = append(s.columns, survey.NewInputColumnSurvey(in, s.file.valueRules()))
		}
	default:
		for i, name := range s.query.Columns() {
			x := survey.NewColumnSurvey(name)
			x.CheckReading = func(r data.Reading) (float64, data.UnusedReason) {
				_, why := convertNumber[float32](r.Value, "")
				if why == "" {
					why = s.table.checkNumber(i, r.Value, &s.targetFilter)
				}
				return r.Value, why
			}
			s.columns = append(s.columns, x)
		}
	}
	names := make([]string, len(s.columns))
	for i, x := range s.columns {
		names[i] = x.Name
	}
	filter := s.file.filter
	filter.dialect = s.dialect
	if s.query == nil || filter.failsOnUnusableRow() { // a survey continues after an unusable row
		filter.missingFill.Policy = grid.FillSkip
	}
	t, missing := findWantedColumns(s.currentFilePath, header, names, filter, s.query == nil)
	s.table = t
	for _, m := range missing {
		problem := "the header has no column " + data.QuoteForMessage(m.fileColumn)
		if m.isNamedTwice {
			problem = "the header has the column " + data.QuoteForMessage(m.fileColumn) + " twice"
		}
		s.AddFault(m.taskColumn, survey.ReasonNoColumn, s.withCurrentFile(survey.DataFault{Line: 1, Problem: problem}))
	}
	found := 0
	wanted := map[string]bool{}
	if filter.TimeColumn != "" {
		wanted[filter.TimeColumn] = true
	}
	for i, x := range s.columns {
		name := s.dialect.fileColumnName(x.Name)
		if name != x.Name {
			x.FileColumn = name
		}
		wanted[name] = true
		t.isTextColumn = append(t.isTextColumn, s.query == nil || len(x.ClassCounts) > 0)
		if t.columnIndexes[i] >= 0 {
			x.IsFoundInFile = true
			found++
		}
	}
	for _, name := range header {
		if !wanted[name] && len(s.UnwantedColumns) < maxSourceInputs && !slices.Contains(s.UnwantedColumns, name) {
			s.UnwantedColumns = append(s.UnwantedColumns, name)
		}
	}
	if s.query != nil && !s.linesAreReadings && s.query.Target != "" {
		t.targetNameIndex = len(s.query.Features)
	}
	if s.query != nil && (found == 0 || !s.linesAreReadings && found < len(s.columns)) ||
		filter.TimeColumn != "" && t.timeColumnIndex < 0 || len(t.rowConditions) < len(filter.RequiredTextByColumn) {
		return t, errUnusableHeader
	}
	return t, nil
}

// errUnusableHeader is returned by findWantedColumns after it has added the faults.
var errUnusableHeader = errors.New("columns are missing")

// surveyRecord examines a line with the right number of fields.
func (s *csvSurvey) surveyRecord(record []string, line int, c *csvRecordReader) {
	now, good := s.readLineTime(record, line, c)
	late := false
	defer func() { s.newestTimeInFile = max(s.newestTimeInFile, now) }()
	for i, at := range s.table.columnIndexes {
		if at < 0 {
			continue
		}
		_, column := c.FieldPosition(at)
		late = s.surveyCell(i, record, now, good, s.withCurrentFile(survey.DataFault{Line: line,
			Column: column})) || late
	}
	if late {
		s.addLateFault(line, now, c, data.QuoteForMessage(strings.TrimSpace(record[s.table.timeColumnIndex]))+
			" is older than a previous line by more than the allowed lateness")
	}
}

// readLineTime returns the time of a line. good is false if the readings of the line cannot be used.
func (s *csvSurvey) readLineTime(record []string, line int, c *csvRecordReader) (at int64, good bool) {
	if s.table.timeColumnIndex < 0 {
		return 0, true
	}
	text, name := strings.TrimSpace(record[s.table.timeColumnIndex]), s.file.filter.TimeColumn
	_, column := c.FieldPosition(s.table.timeColumnIndex)
	at, err := s.dialect.timeFormat.parseTime(text)
	f := s.withCurrentFile(survey.DataFault{Line: line, Column: column})
	if err != nil {
		f.Problem = data.QuoteForMessage(text) + " is not a time " + s.dialect.timeFormat.exampleTime()
		s.AddFault(name, grid.ReasonBadTime, f)
		if text != "" {
			s.unreadableTimes.AddValue(strings.Clone(text)) // copy, because the cell refers to its whole record
		}
		return 0, false
	}
	s.readableTimeCount++
	s.ExtendTimeRange(at)
	class := rows.TimeInOrder
	if s.order != nil {
		p := readPosition{fileIndex: s.currentFileIndex}
		class = s.order.ClassifyTime(at, uint64(p.sequenceNumber(line)))
	}
	f.Problem = data.QuoteForMessage(text)
	switch {
	case class == rows.TimeOutlier:
		f.Problem += " is later than the times of the following lines, or in the future"
		s.AddFault(name, grid.ReasonFutureTime, f).Remedy = "only this line is skipped; to use this line, correct " +
			"its time"
		return at, false
	case at > s.file.now().Add(rows.MaxFutureSkew).UnixNano():
		f.Problem += " is later than now"
		s.AddFault(name, grid.ReasonFutureTime, f).Remedy = "check data.time_zone and the clock of the device"
	case class == rows.TimeLate && !s.linesAreReadings:
		s.addLateFault(line, at, c, f.Problem+" is earlier than the time of a previous row")
		return at, false
	}
	return at, true
}

// addLateFault adds a fault for a line whose time is late.
func (s *csvSurvey) addLateFault(line int, at int64, c *csvRecordReader, problem string) {
	_, column := c.FieldPosition(s.table.timeColumnIndex)
	f := s.AddFault(s.file.filter.TimeColumn, grid.ReasonLate, s.withCurrentFile(survey.DataFault{Line: line,
		Column: column, Problem: problem}))
	f.Remedy = "sort the file by time"
	if s.newestTimeInFile-at > int64(rows.MinClockResetJump) {
		f.Remedy = "only these lines are skipped: the clock was reset, or their times have another format"
	} else if s.mayHaveManyFiles && at >= s.newestTimeInFile {
		f.Remedy = "the files are read in the order of their names, which does not match their times: rename them, " +
			"for example to log-2026-03-01.csv"
	}
	if z := s.dialect.timeFormat.zone; z != nil && z != time.UTC {
		f.Remedy += "; when clocks are set back, only the first occurrence of the repeated hour is used"
	}
}

// surveyCell counts the cell of column i at the place f. It reports whether its reading is late.
func (s *csvSurvey) surveyCell(i int, record []string, at int64, good bool, f survey.DataFault) (late bool) {
	x := s.columns[i]
	classes := x.Texts
	if len(x.ClassCounts) == 0 {
		classes = nil
	}
	c := s.table.readCell(record, i, classes)
	text, why := c.text, c.why
	if classes != nil && s.dialect.missingValues.HasText(text) && !slices.Contains(classes, text) {
		why = grid.ReasonMissing
	}
	if why == grid.ReasonMissing {
		if x.Missing++; s.query != nil && !s.linesAreReadings {
			f.Problem = data.DescribeCellProblem(text, why)
			s.AddFault(x.Name, why, f)
		}
		return false
	}
	s.countCellByDecimal(text, why)
	switch {
	case why != "":
		if x.Unused++; x.CheckReading == nil {
			x.TextCounts.AddText(text)
		}
	case x.CheckReading == nil:
		x.NumberStats.AddValue(c.value)
	case !good:
		x.Unused++ // the fault has already been added for the time of the line
	default:
		why = x.CountReading(data.Reading{Input: x.Name, Time: at, Text: c.className, Value: c.value}, s.lateBeforeTime)
		if why == "" && s.linesAreReadings {
			s.lateBeforeTime = max(s.lateBeforeTime, at-int64(s.query.Recipe.Grid.Lateness))
		}
	}
	if why != "" && why != grid.ReasonLate {
		f.Problem = data.DescribeCellProblem(text, why)
		s.AddFault(x.Name, why, f)
	}
	return why == grid.ReasonLate
}

func (s *csvSurvey) finishSurvey() *survey.SourceSurvey {
	for _, x := range s.columns {
		if x.IsFoundInFile {
			s.Columns = append(s.Columns, x.Summary())
		}
		if x.HasMostlyTexts() { // the texts in such a column are not faults
			s.Faults = slices.DeleteFunc(s.Faults, func(f *survey.DataFaultGroup) bool { return f.Column == x.Name })
		}
	}
	if s.selectedRowCount == 0 && s.LineCount > 0 && len(s.file.filter.RequiredTextByColumn) > 0 {
		s.AddFault("", survey.ReasonNoColumn,
			survey.DataFault{Problem: fmt.Sprintf("none of the %d lines matches data.where", s.LineCount)})
	}
	s.addRemedies()
	return &s.SourceSurvey
}

func openStoredCSV(c *data.Config, _ store.Disk, _ string) (survey.StoredSource, error) {
	s, err := openCSV(c)
	if err != nil {
		return nil, err
	}
	return s.(*csvFile), nil
}
