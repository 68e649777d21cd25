package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

const (
	maxFile   = 1 << 20
	maxTokens = 10_000 // enough for about 3,000 keys; the limit exists because the parser needs quadratic time
)

// configText is the text of a configuration file. Errors quote its lines.
type configText struct {
	path          string
	lines         []string
	isSecretByKey map[string]bool // reports for each key name whether its value is a secret
}

// readDocument reads and parses the file of src. The returned root has no entries if the file contains only comments.
func readDocument(src Source, s schema) (d *configText, root parsedValue, failure *Error) {
	path := src.Path
	d = &configText{path: path, isSecretByKey: map[string]bool{}}
	for _, f := range s.leafFields {
		d.isSecretByKey[f.lastKeyPart] = d.isSecretByKey[f.lastKeyPart] || f.typ == secretType
	}
	data, err := src.Text, error(nil)
	if data == nil {
		data, err = readSizeLimitedFile(path)
	}
	if err != nil {
		reason := err
		if p := new(os.PathError); errors.As(err, &p) { // the origin of the error already contains the path
			reason = p.Err
		}
		return d, root, &Error{Origin: path, Problem: "cannot read the file: " + reason.Error(), Err: err}
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if len(bytes.TrimSpace(data)) == 0 {
		// An interrupted write can leave an empty file, so it must not be read as "all defaults".
		return d, root, d.errorAt(origin{sourceName: path}, "the file is empty",
			"restore the file, or write at least a comment into it to use the defaults")
	}
	d.lines = strings.Split(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n")
	if failure := d.findInvalidCharacter(); failure != nil {
		return d, root, failure
	}
	root, failure = d.parse()
	return d, root, failure
}

// findInvalidCharacter returns an error for the first character of the file that is not text, or nil.
func (d *configText) findInvalidCharacter() *Error {
	for i, line := range d.lines {
		bad := strings.IndexFunc(line, isNotTextRune)
		if bad < 0 {
			continue
		}
		r, size := utf8.DecodeRuneInString(line[bad:])
		problem := fmt.Sprintf("invalid character %U", r)
		if r == utf8.RuneError && size == 1 {
			problem = fmt.Sprintf("invalid UTF-8 byte 0x%02x", line[bad])
		}
		at := origin{d.path, i + 1, utf8.RuneCountInString(line[:bad]) + 1}
		return d.errorAt(at, problem, "the file may be damaged")
	}
	return nil
}

// readSizeLimitedFile reads a file of at most maxFile bytes. The errors name the file.
func readSizeLimitedFile(path string) ([]byte, error) {
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

// isNotTextRune reports whether r is not text. U+FFFD is not text either, because it results from invalid UTF-8 or from
// an earlier faulty conversion.
func isNotTextRune(r rune) bool { return r != '\t' && unicode.IsControl(r) || r == utf8.RuneError }

// errorAt returns an error for the given location and quotes the line there. d may be nil if the location is not in a
// file.
func (d *configText) errorAt(at origin, problem, hint string) *Error {
	e := &Error{Origin: at.sourceName, Line: at.line, Column: at.column, Problem: problem, Hint: hint}
	if at.line > 0 {
		e.Excerpt = d.redactedExcerpt(at.line)
	}
	return e
}

// tokenOrigin returns the location of a token. It skips spaces that the lexer includes at the start of some tokens.
func (d *configText) tokenOrigin(t *token.Token) origin {
	line := min(max(t.Position.Line, 1), len(d.lines))
	runes := []rune(d.lines[line-1])
	column := min(max(t.Position.Column, 1), len(runes)+1)
	for t.Type != token.InvalidType && column < len(runes) && (runes[column-1] == ' ' || runes[column-1] == '\t') {
		column++
	}
	return origin{d.path, line, column}
}

// unsupportedTokens are YAML features that are rejected because configurations do not need them. Aliases are also
// dangerous, because a few lines can expand to gigabytes.
var unsupportedTokens = map[token.Type]string{
	token.AnchorType:     `anchors ("&name")`,
	token.AliasType:      `aliases ("*name")`,
	token.MergeKeyType:   `merge keys ("<<")`,
	token.TagType:        `tags ("!name")`,
	token.DirectiveType:  `directives ("%NAME")`,
	token.MappingKeyType: `complex keys ("? key")`,
}

// parse parses the file as a single YAML document and returns the root value.
func (d *configText) parse() (root parsedValue, failure *Error) {
	invalid := d.errorAt(origin{sourceName: d.path}, "the file is not valid YAML", "")
	// The library has panicked on malformed input before. A reload must not crash a running daemon.
	defer func() {
		if recover() != nil {
			failure = invalid
		}
	}()
	tokens := lexer.Tokenize(strings.Join(d.lines, "\n"))
	if failure := d.findUnsupportedToken(tokens); failure != nil {
		return root, failure
	}
	// Duplicates are allowed here, because rejectDuplicateKeys reports all of them.
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	var syntax yaml.Error
	switch {
	case errors.As(err, &syntax) && syntax.GetToken() != nil:
		return root, d.syntaxError(syntax.GetToken(), syntax.GetMessage())
	case err != nil:
		return root, invalid
	case len(file.Docs) == 0:
		return root, nil
	}
	return d.parseNode(file.Docs[0].Body, origin{sourceName: d.path}), nil
}

// findUnsupportedToken returns an error for the first token that is not allowed in a configuration, or nil.
func (d *configText) findUnsupportedToken(tokens token.Tokens) *Error {
	if len(tokens) > maxTokens {
		return d.errorAt(d.tokenOrigin(tokens[maxTokens]), "the file contains too many keys and values",
			"the file is probably not a configuration of this program")
	}
	content, ended := false, false
	for _, t := range tokens {
		switch {
		case t.Type == token.InvalidType:
			return d.syntaxError(t, t.Error)
		case unsupportedTokens[t.Type] != "":
			return d.errorAt(d.tokenOrigin(t), unsupportedTokens[t.Type]+" are not supported",
				"write the value without this feature, or put text that begins with this character in quotes")
		case t.Type == token.CommentType:
		case t.Type == token.DocumentEndType:
			ended = true
		case ended, content && t.Type == token.DocumentHeaderType:
			return d.errorAt(d.tokenOrigin(t), "unexpected second document in the file",
				"keep only one YAML document in the file")
		default:
			// set also after a leading "---", so that a second document, which would silently replace the first, is
			// detected
			content = true
		}
	}
	return nil
}

// syntaxError returns the error of the YAML library, with a hint if the error is one of the two most common mistakes.
func (d *configText) syntaxError(t *token.Token, message string) *Error {
	hint := ""
	switch {
	case strings.Contains(message, "\t"):
		message, hint = "tabs are not allowed for indentation", "use spaces"
	case strings.HasPrefix(message, "mapping value is not allowed"):
		hint = `check the indentation, and put text that contains ": " in quotes`
	}
	return d.errorAt(d.tokenOrigin(t), message, hint)
}
