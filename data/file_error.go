package data

import "fmt"

// FileError describes an error in a data file, with its place.
type FileError struct {
	File    string
	Line    int    // line number from 1; 0 means the whole file
	Column  string // column name; empty means the whole line
	Problem string
	// ReasonCode is an UnusedReason if values of the column were rejected, or a TroubleKind if no values arrive. It is
	// empty for other problems.
	ReasonCode string
	// BadCount is the number of rejected values or lines and TotalCount the number of all values or lines; 0 for other
	// problems.
	BadCount, TotalCount uint64
	// IsPending reports whether more readings will solve the problem, so that the user need not do anything.
	IsPending bool
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

// Where returns the file and the line.
func (e *FileError) Where() string {
	if e.Line > 0 {
		return fmt.Sprintf("%s: line %d", e.File, e.Line)
	}
	return e.File
}
