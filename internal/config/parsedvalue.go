package config

import (
	"reflect"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// parsedValue is what one source says of one key: the file as YAML, the environment and the command line as text.
type parsedValue struct {
	at   origin
	kind kind
	scalar
	list    []parsedValue
	entries []entry
}

type kind int

const (
	nothing kind = iota // a key without a value
	single
	list
	mapping
)

// entry is a key of a mapping.
type entry struct {
	name  string
	at    origin
	value parsedValue
}

// describe names a value in an error.
func (v parsedValue) describe() string {
	switch v.kind {
	case single:
		return v.show()
	case list:
		return "a list"
	case mapping:
		return "a section of keys"
	default:
		return "nothing"
	}
}

// value reads a node of the file; at is the place of one that is nothing.
func (d *configText) value(n ast.Node, at origin) parsedValue {
	if n == nil || n.Type() == ast.NullType {
		return parsedValue{at: at}
	}
	v := parsedValue{at: d.tokenOrigin(n.GetToken()), kind: single}
	switch n := n.(type) {
	case *ast.MappingNode:
		v.kind = mapping
		for _, e := range n.Values {
			key := e.Key.GetToken()
			at := d.tokenOrigin(key)
			v.entries = append(v.entries, entry{key.Value, at, d.value(e.Value, at)})
		}
	case *ast.SequenceNode:
		v.kind = list
		for _, e := range n.Values {
			at := v.at
			if e != nil {
				at = d.tokenOrigin(e.GetToken())
			}
			v.list = append(v.list, d.value(e, at))
		}
	case *ast.LiteralNode:
		v.scalar = scalar{n.Value.Value, quoted}
	default:
		t := n.GetToken()
		v.scalar = scalar{t.Value, plain}
		if t.Type == token.SingleQuoteType || t.Type == token.DoubleQuoteType {
			v.style = quoted
		}
	}
	return v
}

// parseText parses a text from the environment or the command line. Lists and maps have the notation of the
// configuration file, ["a", b] and {k: v}. A list may also be a,b,c, a map k=v,k=v, and a map of lists k=a:b,k=a:b.
func (l *loader) parseText(f *field, text string, at origin) parsedValue {
	v := parsedValue{at: at, kind: single, scalar: scalar{text, bare}}
	if isFlow(text) && (isTextParser(f.typ) || f.typ.Kind() == reflect.Map || f.typ.Kind() == reflect.Slice) {
		_, root, failure := readDocument(Source{Path: at.name, Text: []byte(text)}, l.schema)
		if failure == nil {
			return root.asFlatText(at)
		}
		l.failKey(at, f.key, failure.Problem+": "+quote(text), failure.Hint)
		return v
	}
	switch {
	case f.typ.Kind() == reflect.Map:
		v.kind = mapping
		for _, part := range splitList(text) {
			name, text, ok := strings.Cut(part, "=")
			if !ok {
				l.failKey(at, f.key, "want name=value, got "+quote(part), "or write {name: value}, as in the file")
				continue
			}
			one := parsedValue{at: at, kind: single, scalar: scalar{text, bare}}
			if f.typ.Elem().Kind() == reflect.Slice {
				one = parsedValue{at: at, kind: list}
				for element := range strings.SplitSeq(text, ":") {
					one.list = append(one.list, parsedValue{at: at, kind: single,
						scalar: scalar{strings.TrimSpace(element), bare}})
				}
			}
			v.entries = append(v.entries, entry{name, at, one})
		}
		return v
	case isTextParser(f.typ) || f.typ.Kind() != reflect.Slice:
		return v
	}
	v.kind = list
	for _, part := range splitList(text) {
		v.list = append(v.list, parsedValue{at: at, kind: single, scalar: scalar{part, bare}})
	}
	return v
}

// isFlow reports whether a text is a list in brackets or a map in braces.
func isFlow(text string) bool {
	return strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]") ||
		strings.HasPrefix(text, "{") && strings.HasSuffix(text, "}")
}

// asFlatText returns a value of the file as one of the environment or the command line: its parts have the origin at,
// and a number without quotes may also be a text.
func (v parsedValue) asFlatText(at origin) parsedValue {
	v.at = at
	if v.style == plain {
		v.style = bare
	}
	for i := range v.list {
		v.list[i] = v.list[i].asFlatText(at)
	}
	for i := range v.entries {
		v.entries[i].at, v.entries[i].value = at, v.entries[i].value.asFlatText(at)
	}
	return v
}

// splitList splits a,b,c; an empty text is the empty list.
func splitList(text string) []string {
	if text == "" {
		return nil
	}
	parts := strings.Split(text, ",")
	for i, part := range parts {
		parts[i] = strings.TrimSpace(part)
	}
	return parts
}
