package demo

import (
	"strconv"
	"strings"
	"testing"
)

// screen emulates a terminal, on which the live display is tested.
type screen struct {
	t             *testing.T
	width, height int
	lines         [][]rune // all lines written so far
	row, column   int
}

func newScreen(t *testing.T, width, height int) *screen {
	return &screen{t: t, width: width, height: height, lines: make([][]rune, 1)}
}

// Write implements io.Writer.
func (s *screen) Write(p []byte) (int, error) {
	text := []rune(string(p))
	for i := 0; i < len(text); i++ {
		switch r := text[i]; r {
		case '\n':
			s.down()
			s.column = 0
		case '\r':
			s.column = 0
		case '\x1b':
			end := i + 2
			for end < len(text) && (text[end] >= '0' && text[end] <= '9') {
				end++
			}
			s.control(string(text[i+1:end]), text[end])
			i = end
		default:
			s.put(r)
		}
	}
	return len(p), nil
}

func (s *screen) put(r rune) {
	if s.column >= s.width {
		s.t.Errorf("a line is wider than %d: %q", s.width, string(s.lines[s.row]))
		s.down()
		s.column = 0
	}
	for len(s.lines[s.row]) <= s.column {
		s.lines[s.row] = append(s.lines[s.row], ' ')
	}
	s.lines[s.row][s.column] = r
	s.column++
}

func (s *screen) down() {
	if s.row++; s.row == len(s.lines) {
		s.lines = append(s.lines, nil)
	}
}

// control executes the control sequences for cursor up (ESC [ n A), cursor down (ESC [ n B) and erase below (ESC [ J).
func (s *screen) control(parameter string, command rune) {
	n, _ := strconv.Atoi(strings.TrimPrefix(parameter, "["))
	top := max(0, len(s.lines)-s.height) // Lines above top have scrolled out of view.
	switch command {
	case 'A':
		if s.row-n < top {
			s.t.Errorf("up %d lines from line %d of a screen that begins at %d", n, s.row, top)
		}
		s.row = max(s.row-n, top)
	case 'B':
		if s.row+n >= len(s.lines) {
			s.t.Errorf("down %d lines from line %d of %d", n, s.row, len(s.lines))
		}
		s.row = min(s.row+n, len(s.lines)-1)
	case 'J':
		s.lines[s.row] = s.lines[s.row][:min(s.column, len(s.lines[s.row]))]
		for i := s.row + 1; i < len(s.lines); i++ {
			s.lines[i] = nil
		}
	default:
		s.t.Errorf("unknown control sequence %q %q", parameter, command)
	}
}

// text returns the visible text of the screen with the character | at the cursor.
func (s *screen) text() string {
	var b strings.Builder
	for i, line := range s.lines {
		shown := strings.TrimRight(string(line), " ")
		if i == s.row {
			r := append([]rune(shown), []rune(strings.Repeat(" ", max(0, s.column-len([]rune(shown)))))...)
			shown = string(r[:s.column]) + "|" + string(r[s.column:])
		}
		b.WriteString(shown + "\n")
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}
