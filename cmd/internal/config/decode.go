package config

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// file sets the keys that the YAML file has.
func (l *loader) file() {
	data, err := readCapped(l.src.Path)
	if err != nil {
		// The origin names the path already.
		reason := err
		if p := new(os.PathError); errors.As(err, &p) {
			reason = p.Err
		}
		problem := "cannot read the file: " + reason.Error()
		l.errs = append(l.errs, &Error{Origin: l.src.Path, Problem: problem, Err: err})
		return
	}
	secrets := map[string]bool{}
	for _, f := range l.schema.leaves() {
		secrets[f.name] = secrets[f.name] || f.secret()
	}
	doc, failure := newDocument(l.src.Path, data, secrets)
	if failure != nil {
		l.errs = append(l.errs, failure)
		return
	}
	l.doc = doc
	body, failure := doc.parse()
	switch root := body.(type) {
	case *ast.MappingNode:
		l.section(root, l.schema.fields)
	case nil:
		if failure != nil {
			l.errs = append(l.errs, failure)
		}
	default:
		l.fail(doc.place(body.GetToken()), "want lines of the form key: value, got "+describe(body), "")
	}
}

// section sets the fields of a section, or of the root, from a mapping.
func (l *loader) section(m *ast.MappingNode, fields []*field) {
	byName := map[string]*field{}
	for _, f := range fields {
		byName[f.name] = f
	}
	for _, entry := range l.entries(m) {
		key := entry.Key.GetToken()
		at := l.doc.place(key)
		f := byName[key.Value]
		if f == nil {
			l.fail(at, "unknown key "+quote(key.Value), l.suggestName(key.Value, fields))
			continue
		}
		l.origins[f.key] = at
		l.value(f, entry.Value, at)
	}
}

// entries returns the keys of a mapping with their values, and refuses a key that is there twice.
func (l *loader) entries(m *ast.MappingNode) []*ast.MappingValueNode {
	lines := map[string]int{}
	return slices.DeleteFunc(slices.Clone(m.Values), func(entry *ast.MappingValueNode) bool {
		key := entry.Key.GetToken()
		at := l.doc.place(key)
		first, twice := lines[key.Value]
		if twice {
			l.fail(at, "duplicate key "+quote(key.Value), fmt.Sprintf("it is already on line %d", first))
		} else {
			lines[key.Value] = at.line
		}
		return twice
	})
}

// suggestName proposes a key in place of one that the section does not have.
func (l *loader) suggestName(name string, fields []*field) string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	if near := closest(name, names); near != "" {
		return didYouMean(near)
	}
	for _, f := range l.schema.leaves() {
		switch section, nested := strings.CutSuffix(f.key, "."+f.name); {
		case f.name == name && !nested:
			return name + " belongs at the top, outside all sections"
		case f.name == name || f.key == name:
			return f.name + " belongs in section " + quote(section)
		}
	}
	return "the keys here are " + strings.Join(names, ", ")
}

// value sets one field from its node; at is where its key stands.
func (l *loader) value(f *field, n ast.Node, at origin) {
	if isNull(n) {
		what := "a value"
		if f.section() {
			what = "its keys"
		}
		l.failKey(at, f.key, "is empty", "write "+what+" or remove the line")
		return
	}
	dst := f.in(l.root)
	switch m, isMapping := n.(*ast.MappingNode); {
	case f.section():
		if isMapping {
			l.section(m, f.fields)
		} else {
			l.failKey(l.doc.place(n.GetToken()), f.key, "want a section of keys, got "+describe(n), "")
		}
	case readsItself(f.typ):
		l.values(f, n, dst)
	case f.typ == oneOrMoreType && n.Type() != ast.SequenceType:
		at = l.doc.place(n.GetToken())
		l.origins[f.key] = at
		text := reflect.New(reflect.TypeFor[string]()).Elem()
		l.scalar(f.key, n, text, at)
		dst.Set(reflect.ValueOf(single(text.String())))
	case f.typ.Kind() == reflect.Slice:
		l.origins[f.key] = at
		l.list(f.key, n, dst, at)
	case f.typ.Kind() == reflect.Map:
		l.table(f, n, dst)
	default:
		// A bad secret is shown by its key, so that no line of its value is printed.
		if !f.secret() {
			at = l.doc.place(n.GetToken())
			l.origins[f.key] = at
		}
		l.scalar(f.key, n, dst, at)
	}
}

// list sets dst from a list, of values or of lists; at is the place for errors if n has none.
func (l *loader) list(key string, n ast.Node, dst reflect.Value, at origin) {
	sequence, ok := n.(*ast.SequenceNode)
	if !ok {
		if !isNull(n) {
			at = l.doc.place(n.GetToken())
		}
		l.failKey(at, key, "want a list, got "+describe(n), "write [a, b]")
		return
	}
	list := reflect.MakeSlice(dst.Type(), len(sequence.Values), len(sequence.Values))
	for i, element := range sequence.Values {
		key, at := elementKey(key, i), at
		if element != nil {
			at = l.doc.place(element.GetToken())
		}
		l.origins[key] = at
		if dst.Type().Elem().Kind() == reflect.Slice {
			l.list(key, element, list.Index(i), at)
		} else {
			l.scalar(key, element, list.Index(i), at)
		}
	}
	dst.Set(list)
}

// elementKey is the key of an element of a list.
func elementKey(key string, i int) string { return fmt.Sprintf("%s[%d]", key, i) }

func (l *loader) table(f *field, n ast.Node, dst reflect.Value) {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		l.failKey(l.doc.place(n.GetToken()), f.key, "want keys with values, got "+describe(n), "write {a: b}")
		return
	}
	table := reflect.MakeMap(f.typ)
	for _, entry := range l.entries(m) {
		name, node := entry.Key.GetToken(), entry.Value
		key := f.key + "." + name.Value
		at := l.doc.place(name)
		if !isNull(node) {
			at = l.doc.place(node.GetToken())
		}
		l.origins[key] = at
		value := reflect.New(f.typ.Elem()).Elem()
		l.scalar(key, node, value, at)
		table.SetMapIndex(reflect.ValueOf(name.Value).Convert(f.typ.Key()), value)
	}
	dst.Set(table)
}

// scalar sets dst from a node that must hold one value.
func (l *loader) scalar(key string, n ast.Node, dst reflect.Value, at origin) {
	s, ok := scalarOf(n)
	if !ok {
		hint := ""
		// the library takes [tcp://a:1] for keys inside of braces
		if _, isMapping := n.(*ast.MappingNode); isMapping && dst.Kind() == reflect.String {
			hint = "text that holds a colon goes in quotes"
		}
		l.failKey(at, key, "want "+wanted(dst.Type())+", got "+describe(n), hint)
	} else if problem, hint := s.set(dst); problem != "" {
		l.failKey(at, key, problem, hint)
	}
}
