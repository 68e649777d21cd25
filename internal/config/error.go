package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Error is a problem of a configuration and its location.
type Error struct {
	// Origin is the source of the invalid value: the path of the file, "environment NAME", "command line" or
	// "defaults".
	Origin string
	// Line and Column are the position in the file, counted from 1. Column counts characters. Both are zero if the
	// problem is not in a file.
	Line, Column int
	// Problem describes the problem, for example `unknown key "particpants"`.
	Problem string
	// Hint suggests a fix, for example `did you mean "participants"?`. Hint is empty if no fix is known.
	Hint string
	// Excerpt is the line of the file, with secrets redacted. It is "" if the problem has no location in a file.
	Excerpt string
	// Err is the underlying error, for example that a file does not exist. Err is usually nil.
	Err error
}

// Error formats the location, the problem and the hint on one line, followed by the line of the file with a caret:
//
//	coordinator.yaml:12:3: unknown key "particpants"; did you mean "participants"?
//	  12 |   particpants: 6
//	     |   ^
func (e *Error) Error() string {
	if e.Line == 0 {
		return e.firstLine()
	}
	text, indent := excerptWindow(e.Excerpt, e.Column)
	number := strconv.Itoa(e.Line)
	return fmt.Sprintf("%s\n  %s | %s\n  %*s | %s^", e.firstLine(), number, text, len(number), "", indent)
}

// firstLine returns the first line of the error text: the location and the problem.
func (e *Error) firstLine() string {
	place := e.Origin
	if e.Line > 0 {
		place += fmt.Sprintf(":%d:%d", e.Line, e.Column)
	}
	if e.Hint == "" {
		return place + ": " + e.Problem
	}
	return place + ": " + e.Problem + "; " + e.Hint
}

// ErrorLines returns an error of [Load] as log lines, one per problem, without the excerpts of the file.
func ErrorLines(err error) []string {
	var lines []string
	for _, err := range flattenErrors(err) {
		if one := (*Error)(nil); errors.As(err, &one) {
			lines = append(lines, one.firstLine())
		} else {
			lines = append(lines, strings.Split(err.Error(), "\n")...)
		}
	}
	return lines
}

// Unwrap returns the cause, for errors.Is.
func (e *Error) Unwrap() error { return e.Err }

// excerptWindow returns a part of line around column, with at most 120 printable characters. indent is the white space
// that must precede a caret to place it under column.
func excerptWindow(line string, column int) (text, indent string) {
	const width, before = 120, 60
	runes := []rune(line)
	at := min(column-1, len(runes))
	start := 0
	var head, tail string
	if at > width-before && len(runes) > width {
		start, head = at-before, "…"
	}
	end := min(start+width, len(runes))
	if end < len(runes) {
		tail = "…"
	}
	shown, blanks := slices.Clone(runes[start:end]), []rune(head)
	for i, r := range shown {
		if r != '\t' && !unicode.IsPrint(r) {
			shown[i] = unicode.ReplacementChar
		}
	}
	blanks = append(blanks, runes[start:at]...)
	for i, r := range blanks {
		if r != '\t' { // keep tabs, because their width is unknown
			blanks[i] = ' '
		}
	}
	return head + string(shown) + tail, string(blanks)
}

// quoteShortened is like strconv.Quote but shortens long input.
func quoteShortened(text string) string {
	const most = 60
	if runes := []rune(text); len(runes) > most {
		return strconv.Quote(string(runes[:most]) + "…")
	}
	return strconv.Quote(text)
}
