package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml/token"
)

const maxFile = 1 << 20

// document is the text of a configuration file, kept to show lines of it in errors.
type document struct {
	path    string
	lines   []string
	secrets map[string]bool // all key names; true if the value is a secret
}

// newDocument refuses an empty file and one that is not text.
func newDocument(path string, data []byte, secrets map[string]bool) (*document, *Error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	d := &document{path: path, secrets: secrets, lines: strings.Split(string(data), "\n")}
	if len(bytes.TrimSpace(data)) == 0 {
		// An emptied file is what a power cut leaves of an unfinished write: never take it for "all defaults".
		return nil, d.errorAt(origin{name: path}, "the file is empty",
			"restore it, or write at least a comment to mean the defaults")
	}
	for i, line := range d.lines {
		line = strings.TrimSuffix(line, "\r")
		d.lines[i] = line
		if bad := strings.IndexFunc(line, notText); bad >= 0 {
			r, size := utf8.DecodeRuneInString(line[bad:])
			problem := fmt.Sprintf("character %U is not text", r)
			if r == utf8.RuneError && size == 1 {
				problem = fmt.Sprintf("byte 0x%02x is not UTF-8 text", line[bad])
			}
			at := origin{path, i + 1, utf8.RuneCountInString(line[:bad]) + 1}
			return nil, d.errorAt(at, problem, "the file may be damaged")
		}
	}
	return d, nil
}

// readCapped reads a file of at most maxFile bytes. The errors name the file.
func readCapped(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = &os.PathError{Op: "read", Path: path, Err: errTooLarge}
	}
	return data, err
}

var errTooLarge = errors.New("the file is larger than 1 MiB")

// notText also finds bytes that are not UTF-8, and a U+FFFD that an earlier conversion has left.
func notText(r rune) bool { return r != '\t' && unicode.IsControl(r) || r == utf8.RuneError }

// errorAt is an error with the line it is about. d may be nil for a place outside a file.
func (d *document) errorAt(at origin, problem, hint string) *Error {
	e := &Error{Origin: at.name, Line: at.line, Column: at.column, Problem: problem, Hint: hint}
	if at.line > 0 {
		e.Excerpt = d.excerpt(at.line)
	}
	return e
}

// place returns where a token stands. The lexer counts the blanks before some tokens as part of them.
func (d *document) place(t *token.Token) origin {
	line := min(max(t.Position.Line, 1), len(d.lines))
	runes := []rune(d.lines[line-1])
	column := min(max(t.Position.Column, 1), len(runes)+1)
	for t.Type != token.InvalidType && column < len(runes) && (runes[column-1] == ' ' || runes[column-1] == '\t') {
		column++
	}
	return origin{d.path, line, column}
}

var (
	credentials   = regexp.MustCompile(`(://)[^/\s@]+@`) // user and password in a URL
	keyPattern    = regexp.MustCompile(`([\w.-]+)["']?\s*:(\s|$)`)
	secretPattern = regexp.MustCompile(`(?i)pass|secret|token|credential|private`)
)

// excerpt returns a line with secrets replaced, also those in URLs, because errors end up in logs. It searches the
// text, because there is no tree after a syntax error. An unknown key whose name sounds like a secret counts as one.
func (d *document) excerpt(line int) string {
	// as long as it was, for the caret
	text := credentials.ReplaceAllStringFunc(d.lines[line-1], func(s string) string {
		return "://" + strings.Repeat("*", utf8.RuneCountInString(s)-4) + "@"
	})
	for i := line - 1; i >= 0; i-- {
		keys := keyPattern.FindAllStringSubmatchIndex(d.lines[i], -1)
		for _, k := range keys {
			if !d.isSecret(d.lines[i][k[2]:k[3]]) {
				continue
			}
			if i == line-1 {
				return text[:k[1]] + redacted
			}
			return redacted // a further line of a value that began above
		}
		if keys != nil {
			break
		}
	}
	return text
}

// isSecret reports whether the key of that name is a secret, or may have been meant as one.
func (d *document) isSecret(name string) bool {
	if secret, known := d.secrets[name]; known {
		return secret
	}
	for known, secret := range d.secrets {
		if secret && closest(name, []string{known}) != "" {
			return true
		}
	}
	return secretPattern.MatchString(name)
}
