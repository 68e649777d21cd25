package config

import (
	"reflect"

	"github.com/goccy/go-yaml/ast"
)

// Values is a type of field that reads itself from what is written: one value, or a list of them. A pointer to the
// field implements it, and the field itself fmt.Stringer, which writes it back.
type Values interface {
	// Parse sets the field from one text, or from those of a list. It returns the place of the text that is wrong, and
	// what is wrong with it.
	Parse(texts []string, list bool) (bad int, err error)
}

// readsItself reports whether t is such a type.
func readsItself(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[Values]())
}

// values sets a field that reads itself.
func (l *loader) values(f *field, n ast.Node, dst reflect.Value) {
	nodes := []ast.Node{n}
	sequence, list := n.(*ast.SequenceNode)
	if list {
		nodes = sequence.Values
	}
	texts, places := make([]string, len(nodes)), make([]origin, len(nodes))
	l.origins[f.key] = l.doc.place(n.GetToken())
	for i, element := range nodes {
		s, ok := scalar{}, false
		places[i] = l.origins[f.key]
		if !isNull(element) {
			places[i] = l.doc.place(element.GetToken())
			s, ok = scalarOf(element)
		}
		switch {
		case !ok:
			l.failKey(places[i], f.key, "want one value, got "+describe(element), "")
			return
		case s.style == quoted && (scalar{s.text, plain}).typed():
			l.failKey(places[i], f.key, "want a number, got "+s.show(), "remove the quotes")
			return
		}
		texts[i] = s.text
		if list {
			l.origins[elementKey(f.key, i)] = places[i]
		}
	}
	l.parse(f, dst, texts, list, places)
}

// parse hands texts to the field.
func (l *loader) parse(f *field, dst reflect.Value, texts []string, list bool, places []origin) {
	if len(texts) == 0 {
		l.failKey(l.origins[f.key], f.key, "is an empty list", "write at least one value")
		return
	}
	if bad, err := dst.Addr().Interface().(Values).Parse(texts, list); err != nil {
		l.failKey(places[bad], f.key, err.Error(), "")
	}
}
