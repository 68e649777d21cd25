package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// OneOrMore is a list of texts that may also be written as a single text. An empty text is an empty list.
type OneOrMore []string

// TextParser is implemented by pointers to fields that parse their own value from a text or a list of texts. The type
// of the field itself, without the pointer, must implement fmt.Stringer.
type TextParser interface {
	// Parse sets the field from a single text or from the texts of a list. On failure it returns the index of the
	// invalid text and the error.
	Parse(texts []string, list bool) (bad int, err error)
}

// isTextParser reports whether a pointer to t implements [TextParser].
func isTextParser(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[TextParser]())
}

// setSection sets the fields of a section, or of the root itself.
func (l *loader) setSection(root reflect.Value, v parsedValue, fields []*schemaField) {
	for _, e := range l.rejectDuplicateKeys(v.mappingEntries) {
		i := slices.IndexFunc(fields, func(f *schemaField) bool { return f.lastKeyPart == e.keyName })
		if i < 0 {
			l.recordError(e.keyOrigin, "unknown key "+quoteShortened(e.keyName), l.suggestName(e.keyName, fields))
			continue
		}
		f, v := fields[i], e.value
		switch {
		case v.kind == emptyKind && f.isSectionField():
			l.recordKeyError(e.keyOrigin, f.key, "is empty", "write the keys of this section, or remove the line")
		case v.kind == emptyKind:
			l.recordKeyError(e.keyOrigin, f.key, "is empty", "write a value, or remove the line")
		case f.isSectionField() && v.kind != mappingKind:
			l.recordKeyError(v.origin, f.key, "want a section of keys, got "+v.describe(), "")
		case f.isSectionField():
			l.originByKey[f.key] = e.keyOrigin
			f.fieldValueIn(root, true)
			l.setSection(root, v, f.sectionFields)
		default:
			// an error shows the line of the key, because the line of the value may contain the secret
			if f.typ == secretType {
				v.origin = e.keyOrigin
			}
			l.setField(f.key, f.fieldValueIn(root, true), v)
			// Errors in the elements of a list or map are reported at the line of the key.
			if v.kind != scalarKind && !isTextParser(f.typ) {
				l.originByKey[f.key] = e.keyOrigin
			}
		}
	}
}

// rejectDuplicateKeys returns the entries of a mapping without duplicate keys. rejectDuplicateKeys records an error for
// each duplicate.
func (l *loader) rejectDuplicateKeys(entries []mappingEntry) []mappingEntry {
	first := map[string]origin{}
	return slices.DeleteFunc(entries, func(e mappingEntry) bool {
		at, twice := first[e.keyName]
		switch {
		case !twice:
			first[e.keyName] = e.keyOrigin
		case at.line == 0:
			l.recordError(e.keyOrigin, "duplicate key "+quoteShortened(e.keyName), "")
		default:
			l.recordError(e.keyOrigin, "duplicate key "+quoteShortened(e.keyName),
				fmt.Sprintf("the key is already set on line %d",
					at.line))
		}
		return twice
	})
}

// suggestName suggests a key for a name that the section does not have.
func (l *loader) suggestName(name string, fields []*schemaField) string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.lastKeyPart
	}
	if near := closestName(name, names); near != "" {
		return didYouMean(near)
	}
	for _, f := range l.schema.leafFields {
		switch section, nested := strings.CutSuffix(f.key, "."+f.lastKeyPart); {
		case f.lastKeyPart == name && !nested:
			return name + " is a top-level key: move it out of this section"
		case f.lastKeyPart == name || f.key == name:
			return f.lastKeyPart + " is a key of the section " + quoteShortened(section)
		}
	}
	return "the valid keys are " + strings.Join(names, ", ")
}

// setField sets a leaf or an element of a list.
func (l *loader) setField(key string, dst reflect.Value, v parsedValue) {
	l.originByKey[key] = v.origin
	switch t := dst.Type(); {
	case isTextParser(t):
		l.setFromTexts(key, dst, v)
	case t.Kind() == reflect.Struct && v.kind != mappingKind:
		l.recordKeyError(v.origin, key, "want a section of keys, got "+v.describe(), "write {a: b}")
	case t.Kind() == reflect.Struct: // the struct is an entry of a list
		l.setSection(dst, v, newSectionSchema(t, key+".").topLevelFields)
	case t == oneOrMoreType && v.kind == scalarKind && v.text == "":
		dst.SetZero()
	case t == oneOrMoreType && v.kind != listKind:
		text := reflect.New(t.Elem()).Elem()
		l.setScalar(key, text, v)
		dst.Set(reflect.Append(reflect.Zero(t), text))
	case t.Kind() == reflect.Slice && v.kind != listKind:
		l.recordKeyError(v.origin, key, "want a list, got "+v.describe(), "write [a, b]")
	case t.Kind() == reflect.Slice:
		dst.Set(reflect.MakeSlice(t, len(v.listElements), len(v.listElements)))
		own, of, inherits := sharedEmbeddedField(l.configValue.Type(), t.Elem())
		fill := func() {
			for i, element := range v.listElements {
				if inherits {
					begin := dst.Index(i).Field(own)
					begin.Set(l.configValue.Field(of))
					copyOptionalSections(begin)
				}
				l.setField(elementKey(key, i), dst.Index(i), element)
			}
		}
		if inherits {
			l.pendingListEntryFills = append(l.pendingListEntryFills, fill)
		} else {
			fill()
		}
	case t.Kind() == reflect.Map && v.kind != mappingKind:
		l.recordKeyError(v.origin, key, "want key-value pairs, got "+v.describe(), "write {a: b}")
	case t.Kind() == reflect.Map:
		dst.Set(reflect.MakeMap(t))
		for _, e := range l.rejectDuplicateKeys(v.mappingEntries) {
			text := reflect.New(t.Elem()).Elem()
			l.setField(key+"."+e.keyName, text, e.value)
			dst.SetMapIndex(reflect.ValueOf(e.keyName).Convert(t.Key()), text)
		}
	default:
		l.setScalar(key, dst, v)
	}
}

// sharedEmbeddedField finds an embedded struct that a list entry has in common with the whole configuration. It returns
// the indices of the struct in entry and root.
func sharedEmbeddedField(root, entry reflect.Type) (own, of int, ok bool) {
	if entry.Kind() != reflect.Struct {
		return 0, 0, false
	}
	for own := range entry.NumField() {
		for of := range root.NumField() {
			e, r := entry.Field(own), root.Field(of)
			if e.Anonymous && r.Anonymous && e.Type == r.Type {
				return own, of, true
			}
		}
	}
	return 0, 0, false
}

// copyOptionalSections replaces each pointer to an optional section by a pointer to a copy of the section, so that the
// entries of a list share no sections. Lists and maps need no copy, because the loader only replaces them as a whole.
func copyOptionalSections(section reflect.Value) {
	for i := range section.NumField() {
		f := section.Field(i)
		if f.Kind() == reflect.Pointer && !f.IsNil() && f.CanSet() {
			own := reflect.New(f.Type().Elem())
			own.Elem().Set(f.Elem())
			f.Set(own)
			f = own.Elem()
		}
		if f.Kind() == reflect.Struct && f.CanSet() {
			copyOptionalSections(f)
		}
	}
}

func elementKey(key string, i int) string { return fmt.Sprintf("%s[%d]", key, i) }

func (l *loader) setScalar(key string, dst reflect.Value, v parsedValue) {
	switch {
	case v.kind == mappingKind &&
		dst.Kind() == reflect.String: // inside braces, the YAML library parses [tcp://a:1] as a map
		l.recordKeyError(v.origin, key, "want text, got "+v.describe(), "put text that contains a colon in quotes")
	case v.kind != scalarKind:
		l.recordKeyError(v.origin, key, "want "+describeExpectedForm(dst.Type())+", got "+v.describe(), "")
	default:
		if problem, hint := v.parseInto(dst); problem != "" {
			l.recordKeyError(v.origin, key, problem, hint)
		}
	}
}

// setFromTexts passes texts to a [TextParser] field.
func (l *loader) setFromTexts(key string, dst reflect.Value, v parsedValue) {
	elements := []parsedValue{v}
	if v.kind == listKind {
		elements = v.listElements
	}
	texts := make([]string, len(elements))
	for i, e := range elements {
		switch {
		case e.kind != scalarKind:
			l.recordKeyError(e.origin, key, "want one value, got "+e.describe(), "")
			return
		case e.style == quotedStyle && e.isNumberOrBool():
			l.recordKeyError(e.origin, key, "want a number, got "+e.displayText(), "remove the quotes")
			return
		}
		texts[i] = e.text
		if v.kind == listKind {
			l.originByKey[elementKey(key, i)] = e.origin
		}
	}
	if len(texts) == 0 {
		l.recordKeyError(v.origin, key, "is an empty list", "write at least one value")
	} else if bad, err := dst.Addr().Interface().(TextParser).Parse(texts, v.kind == listKind); err != nil {
		l.recordKeyError(elements[bad].origin, key, err.Error(), "")
	}
}
