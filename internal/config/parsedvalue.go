package config

import (
	"reflect"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// parsedValue is the value of a key from one source: YAML from the file, text from the environment or the command line.
type parsedValue struct {
	origin origin
	kind   valueShape
	scalar
	listElements   []parsedValue
	mappingEntries []mappingEntry
}

type valueShape int

const (
	emptyKind valueShape = iota // kind of the value of a key that is followed by nothing
	scalarKind
	listKind
	mappingKind
)

// mappingEntry is a key of a mapping with its value.
type mappingEntry struct {
	keyName   string
	keyOrigin origin
	value     parsedValue
}

// describe returns a description of the value for errors.
func (v parsedValue) describe() string {
	switch v.kind {
	case scalarKind:
		return v.displayText()
	case listKind:
		return "a list"
	case mappingKind:
		return "a section of keys"
	default:
		return "nothing"
	}
}

// parseNode converts a YAML node to a parsedValue. The value of a null node, which has no position in the file, gets
// the origin at.
func (d *configText) parseNode(n ast.Node, at origin) parsedValue {
	if n == nil || n.Type() == ast.NullType {
		return parsedValue{origin: at}
	}
	v := parsedValue{origin: d.tokenOrigin(n.GetToken()), kind: scalarKind}
	switch n := n.(type) {
	case *ast.MappingNode:
		v.kind = mappingKind
		for _, e := range n.Values {
			key := e.Key.GetToken()
			at := d.tokenOrigin(key)
			v.mappingEntries = append(v.mappingEntries, mappingEntry{key.Value, at, d.parseNode(e.Value, at)})
		}
	case *ast.SequenceNode:
		v.kind = listKind
		for _, e := range n.Values {
			at := v.origin
			if e != nil {
				at = d.tokenOrigin(e.GetToken())
			}
			v.listElements = append(v.listElements, d.parseNode(e, at))
		}
	case *ast.LiteralNode:
		v.scalar = scalar{n.Value.Value, quotedStyle}
	default:
		t := n.GetToken()
		v.scalar = scalar{t.Value, plainStyle}
		if t.Type == token.SingleQuoteType || t.Type == token.DoubleQuoteType {
			v.style = quotedStyle
		}
	}
	return v
}

// parseOverrideText parses a value from an environment variable or the command line. Lists are written as [a, b] or
// a,b, maps as {k: v} or k=v,k=v, and maps of lists also as k=a:b,k=c:d.
func (l *loader) parseOverrideText(f *schemaField, text string, at origin) parsedValue {
	v := parsedValue{origin: at, kind: scalarKind, scalar: scalar{text, untypedStyle}}
	if isFlowNotation(text) && (isTextParser(f.typ) || f.typ.Kind() == reflect.Map || f.typ.Kind() == reflect.Slice) {
		_, root, failure := readDocument(Source{Path: at.sourceName, Text: []byte(text)}, l.schema)
		if failure == nil {
			return root.asOverrideValue(at)
		}
		l.recordKeyError(at, f.key, failure.Problem+": "+quoteShortened(text), failure.Hint)
		return v
	}
	switch {
	case f.typ.Kind() == reflect.Map:
		v.kind = mappingKind
		for _, part := range splitList(text) {
			name, text, ok := strings.Cut(part, "=")
			if !ok {
				l.recordKeyError(at, f.key, "want name=value, got "+quoteShortened(part),
					"or write the value as {name: value}, as in the configuration file")
				continue
			}
			one := parsedValue{origin: at, kind: scalarKind, scalar: scalar{text, untypedStyle}}
			if f.typ.Elem().Kind() == reflect.Slice {
				one = parsedValue{origin: at, kind: listKind}
				for element := range strings.SplitSeq(text, ":") {
					one.listElements = append(one.listElements, parsedValue{origin: at, kind: scalarKind,
						scalar: scalar{strings.TrimSpace(element), untypedStyle}})
				}
			}
			v.mappingEntries = append(v.mappingEntries, mappingEntry{name, at, one})
		}
		return v
	case isTextParser(f.typ) || f.typ.Kind() != reflect.Slice:
		return v
	}
	v.kind = listKind
	for _, part := range splitList(text) {
		v.listElements = append(v.listElements, parsedValue{origin: at, kind: scalarKind, scalar: scalar{part,
			untypedStyle}})
	}
	return v
}

// isFlowNotation reports whether a text is a list in brackets or a map in braces.
func isFlowNotation(text string) bool {
	return strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]") ||
		strings.HasPrefix(text, "{") && strings.HasSuffix(text, "}")
}

// asOverrideValue converts a value in YAML notation to a value from an environment variable or the command line. All
// its parts get the origin at, and unquoted numbers are also accepted as text.
func (v parsedValue) asOverrideValue(at origin) parsedValue {
	v.origin = at
	if v.style == plainStyle {
		v.style = untypedStyle
	}
	for i := range v.listElements {
		v.listElements[i] = v.listElements[i].asOverrideValue(at)
	}
	for i := range v.mappingEntries {
		v.mappingEntries[i].keyOrigin, v.mappingEntries[i].value = at, v.mappingEntries[i].value.asOverrideValue(at)
	}
	return v
}

// splitList splits a comma-separated list. splitList returns an empty list for an empty text.
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
