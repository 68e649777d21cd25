package data

import "fmt"

// FileError says what is wrong in a data file, and where.
type FileError struct {
	File    string
	Line    int    // from 1; 0 = the whole file
	Column  string // "" = the whole line
	Problem string
	// ReasonCode is why values of the column are not used, or, as a TroubleKind, why there are none; "" = another
	// problem.
	ReasonCode           string
	BadCount, TotalCount uint64 // so many of so many values, or lines, are not used; 0 = that is not the problem
}

func (e *FileError) Error() string {
	text := e.Problem
	if e.Column != "" {
		text = fmt.Sprintf("column %q: %s", UTF8Text(e.Column), text)
	}
	if where := e.Where(); where != "" {
		text = where + ": " + text
	}
	return text
}

// Where names file and line.
func (e *FileError) Where() string {
	if e.Line > 0 {
		return fmt.Sprintf("%s: line %d", e.File, e.Line)
	}
	return e.File
}
