package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// Error is one thing wrong with a configuration, and where.
type Error struct {
	// Origin is the file's path, "environment NAME", "command line", or "defaults".
	Origin string
	// Line and Column, in characters from 1, are zero when the problem has no place in a file.
	Line, Column int
	// Problem says what is wrong: `unknown key "particpants"`.
	Problem string
	// Hint says what to do, if it is known: `did you mean "participants"?`.
	Hint string
	// Excerpt is the line of the file, with secrets replaced; "" without a place in a file.
	Excerpt string
	// Err is the cause, such as a file that does not exist; mostly nil.
	Err error
}

// Error prints the place, the problem and the hint on one line and then the line of the file with a caret:
//
//	coordinator.yaml:12:3: unknown key "particpants"; did you mean "participants"?
//	  12 |   particpants: 6
//	     |   ^
func (e *Error) Error() string {
	if e.Line == 0 {
		return e.line()
	}
	text, indent := window(e.Excerpt, e.Column)
	number := strconv.Itoa(e.Line)
	return fmt.Sprintf("%s\n  %s | %s\n  %*s | %s^", e.line(), number, text, len(number), "", indent)
}

// line is the first line of Error.
func (e *Error) line() string {
	place := e.Origin
	if e.Line > 0 {
		place += fmt.Sprintf(":%d:%d", e.Line, e.Column)
	}
	if e.Hint == "" {
		return place + ": " + e.Problem
	}
	return place + ": " + e.Problem + "; " + e.Hint
}

// Lines returns an error of [Load] as lines for a log, one per problem, without the excerpts of the file.
func Lines(err error) []string {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		var lines []string
		for _, one := range joined.Unwrap() {
			lines = append(lines, Lines(one)...)
		}
		return lines
	}
	if one := (*Error)(nil); errors.As(err, &one) {
		return []string{one.line()}
	}
	return strings.Split(err.Error(), "\n")
}

// Unwrap returns the cause, for errors.Is.
func (e *Error) Unwrap() error { return e.Err }

// window returns at most a screen's width of line around the column, made safe to print, and the indent of a caret
// under that column.
func window(line string, column int) (text, indent string) {
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
	var b strings.Builder
	for _, r := range runes[start:at] {
		b.WriteString(blank(r))
	}
	printable := strings.Map(func(r rune) rune {
		if r != '\t' && !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, string(runes[start:end]))
	return head + printable + tail, strings.Repeat(" ", len([]rune(head))) + b.String()
}

// blank returns blanks as wide as r on a terminal: a tab stays a tab, since its width is not known; characters of the
// East Asian scripts take two columns, combining marks none.
func blank(r rune) string {
	switch {
	case r == '\t':
		return "\t"
	case unicode.Is(unicode.Mn, r):
		return ""
	case unicode.In(r, unicode.Han, unicode.Hangul, unicode.Hiragana, unicode.Katakana), r >= 0xff01 && r <= 0xff60:
		return "  "
	default:
		return " "
	}
}

// quote is strconv.Quote for input that may be very long.
func quote(text string) string {
	const most = 60
	if runes := []rune(text); len(runes) > most {
		return strconv.Quote(string(runes[:most]) + "…")
	}
	return strconv.Quote(text)
}
