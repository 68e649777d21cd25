package sources

import (
	"fmt"
	"hash/fnv"
	"io"
	"slices"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/spec"
)

// csvReadingFeed passes on the readings of CSV files. Each line contains one reading for each column that is an input,
// at the time of the line.
type csvReadingFeed struct {
	*csvFile
	fileFollower
	data.AtomicQualityReport
	inputs       []spec.InputSeries
	neededInputs []string // names of the inputs that the task's columns require
	rewindReason string   // reason for passing on all readings again; empty if not required
}

// Changed implements rows.ReadingFeed.
func (f *csvReadingFeed) Changed() bool { return f.haveFilesChanged() }

// DescribeReadingPlace implements rows.ReadingFeed.
func (f *csvReadingFeed) DescribeReadingPlace(_ string, line int64) string {
	return f.progress.describeLine(line)
}

// Rewind implements rows.ReadingFeed. Resetting lastStamps makes Changed return true.
func (f *csvReadingFeed) Rewind(why string) { f.rewindReason, f.lastStamps = why, nil }

// Read implements rows.ReadingFeed.
func (f *csvReadingFeed) Read(restart func(why string), take func(data.Reading) bool) error {
	changed := f.updateStamps()
	if !changed && f.rewindReason == "" {
		return nil
	}
	if f.rewindReason != "" {
		restart(fmt.Sprintf("%s: %s", f.csvFile.path, f.rewindReason))
		f.progress, f.rewindReason = readProgress{}, ""
	}
	to, err := f.readNewData(func(why string) {
		f.progress = readProgress{}
		restart(fmt.Sprintf("%s: %s", f.csvFile.path, why))
	}, func(text *countingReader, at *readPosition, y *csvReadCounts) error {
		return f.readReadings(text, at, y, take)
	})
	if to.columnCounts != nil {
		all := to.qualityReport(f.inputNames(), f.filter.TimeColumn)
		for i := len(all.Columns) - 1; i >= 0; i-- {
			if c := all.Columns[i]; i < len(f.inputs) && !to.hasInputColumn(i) {
				all.Columns = slices.Delete(all.Columns, i, i+1)
				if slices.Contains(f.neededInputs, c.Name) {
					all.Troubles = append(all.Troubles, data.SourceTrouble{Kind: data.TroubleSilent, Text: fmt.Sprintf(
						"%s has no column for the input %q", f.csvFile.path, c.Name)})
				}
			}
		}
		slices.Reverse(all.Troubles)
		f.SetQualityReport(all)
	}
	if err != nil {
		// Do not call Rewind, because reading the unchanged file would fail again. The next attempt is made after the
		// file has changed.
		f.rewindReason = "the file is read again after an error"
		return err
	}
	f.progress = to
	return nil
}

func (f *csvReadingFeed) inputNames() (all []string) {
	for _, in := range f.inputs {
		all = append(all, in.Name)
	}
	return all
}

// hasInputColumn reports whether at least one file has a column for the input with this index.
func (p *readProgress) hasInputColumn(input int) bool {
	return slices.ContainsFunc(p.files, func(f readPosition) bool {
		return f.table != nil && f.table.headerProblem == "" && f.table.columnIndexes[input] >= 0
	})
}

// readReadings reads a CSV text and passes its readings to take.
func (f *csvReadingFeed) readReadings(text *countingReader, at *readPosition, y *csvReadCounts,
	take func(data.Reading) bool) error {
	c := f.filter.dialect.newRecordReader(text, at)
	y.allocateColumnCounts(len(f.inputs))
	return y.forEachRow(c, at, func(header []string) (*columnMapping, error) {
		return f.findInputColumns(at.stamp.path, header)
	}, func(record []string, line int) error {
		f.passOnLineReadings(at, y, record, line, take)
		return nil
	}, func(bad *data.FileError) {
		for i := range f.inputs {
			if at.table.headerProblem != "" || at.table.columnIndexes[i] >= 0 {
				y.columnCounts[i].countRejectedCell(rejectedCell{bad.File, bad.Line, bad.Problem, grid.ReasonMalformed})
			}
		}
	})
}

// findInputColumns finds the inputs in a header. A file may lack some inputs that other files contain.
func (f *csvReadingFeed) findInputColumns(file string, header []string) (*columnMapping, error) {
	t, missing := findWantedColumns(file, header, f.inputNames(), f.filter, false)
	for _, m := range missing {
		if !m.isTaskColumn || m.isNamedTwice {
			return nil, t.missingColumnError(m)
		}
	}
	if len(missing) == len(f.inputs) {
		names := make([]string, 0, len(f.neededInputs))
		for _, name := range f.neededInputs {
			names = append(names, f.filter.dialect.fileColumnName(name))
		}
		return nil, &data.FileError{File: file, Line: 1, Problem: "the file contains none of the task's inputs; the " +
			"columns are " +
			quoteNames(header) + f.filter.dialect.skipRowsHint(file, names)}
	}
	for _, in := range f.inputs {
		t.isTextColumn = append(t.isTextColumn, len(in.Classes) > 0)
	}
	return t, nil
}

// passOnLineReadings passes the readings of one line to take.
func (f *csvReadingFeed) passOnLineReadings(place *readPosition, y *csvReadCounts, record []string, line int,
	take func(data.Reading) bool) {
	t := place.table
	at, bad := y.parseRowTime(t, record, line)
	if bad != nil {
		return
	}
	y.columnCounts[len(t.columnIndexes)].countUsedCell()
	source := t.readingSourceHash(record)
	number := place.sequenceNumber(line)
	// Deliver the time of the line even if the line has no value.
	if take(data.Reading{Time: at, SequenceNumber: uint64(number)}) {
		y.newestRowTime = max(y.newestRowTime, at)
	}
	for i, column := range t.columnIndexes {
		if column < 0 {
			continue
		}
		c := t.readCell(record, i, f.inputs[i].Classes)
		if c.why != "" {
			y.columnCounts[i].countRejectedCell(rejectedCell{t.fileName, line, c.text, c.why})
			continue
		}
		y.columnCounts[i].addValue(c.value, at)
		take(data.Reading{Input: t.wantedNames[i], Time: at, Source: source, Line: number,
			SequenceNumber: uint64(number),
			Text:           c.className,
			Value:          c.value})
	}
}

// readingSourceHash returns a hash of the columns that are neither the time nor an input. If a file contains several
// meters, such a column may contain the name of the meter. Two lines with the same time are therefore duplicates only
// if their hashes are equal.
func (t *columnMapping) readingSourceHash(record []string) uint64 {
	h := fnv.New64a()
	for i, text := range record {
		if i != t.timeColumnIndex && !slices.Contains(t.columnIndexes, i) {
			_, _ = io.WriteString(h, text+"\x00") // writing to a hash never returns an error
		}
	}
	return h.Sum64()
}
