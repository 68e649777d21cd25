package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// terminalPrompt asks questions on a terminal. A nil prompt answers every question with its default.
type terminalPrompt struct {
	input  io.Reader
	output io.Writer
	lines  *bufio.Reader
	err    error // first error while asking questions; nil if none
}

// print writes formatted text to the terminal.
func (q *terminalPrompt) print(format string, args ...any) {
	if q != nil && q.err == nil {
		_, q.err = fmt.Fprintf(q.output, format, args...)
	}
}

// askText asks a question and stores the input in answer, unless answer is already set. An empty input selects the
// default answer fallback.
func (q *terminalPrompt) askText(question string, answer *string, fallback string) {
	if *answer != "" {
		return
	}
	if *answer = fallback; q == nil {
		return
	}
	if fallback != "" {
		question += " [" + fallback + "]"
	}
	q.print("%s: ", question)
	if q.err != nil {
		return
	}
	if q.lines == nil {
		q.lines = bufio.NewReader(q.input)
	}
	line, err := q.lines.ReadString('\n')
	if q.err = err; strings.TrimSpace(line) != "" {
		*answer = strings.TrimSpace(line)
	}
}

// askYesNo asks a yes-or-no question. An empty input means no.
func (q *terminalPrompt) askYesNo(question string, answer *bool) {
	if q == nil {
		return
	}
	text := ""
	q.askText(question+" (yes or no)", &text, "no")
	switch strings.ToLower(text) {
	case "yes", "y":
		*answer = true
	case "no", "n":
	default:
		if q.err == nil {
			q.err = fmt.Errorf("%s: %q is neither yes nor no", question, text)
		}
	}
}

// askNumber asks a question like askText, but accepts only a positive whole number.
func (q *terminalPrompt) askNumber(question string, answer *int, fallback int) {
	if *answer != 0 {
		return
	}
	if *answer = fallback; q == nil {
		return
	}
	text, def := "", ""
	if fallback != 0 {
		def = strconv.Itoa(fallback)
	}
	q.askText(question, &text, def)
	n, _ := strconv.Atoi(text)
	if n < 1 && q.err == nil {
		q.err = fmt.Errorf("%s: %q is not a whole number above 0", question, text)
	}
	*answer = n
}

// failure returns the first error that occurred while asking questions.
func (q *terminalPrompt) failure() error {
	switch {
	case q == nil:
		return nil
	case errors.Is(q.err, io.EOF):
		return errors.New("input ended before all questions were answered; no files were created")
	}
	return q.err
}
