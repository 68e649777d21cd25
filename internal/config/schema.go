package config

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/spec"
)

// schemaField is one key of the configuration: a leaf with a value, or a section with keys of its own.
type schemaField struct {
	key              string         // path from the root: "task.step_size"
	lastKeyPart      string         // its last part: "step_size"
	structFieldIndex []int          // of the struct field, from the root
	typ              reflect.Type   // without the pointer of an optional section
	sectionFields    []*schemaField // of a section, in the order of declaration
}

func (f *schemaField) isSectionField() bool { return isSection(f.typ) }

func isSection(t reflect.Type) bool { return t.Kind() == reflect.Struct && !isTextParser(t) }

// envVariable returns the environment variable of a leaf, without the prefix.
func (f *schemaField) envVariable() string {
	return strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(f.key))
}

// fieldValueIn returns the value of f inside root. Of an optional section on the way that is nil, it makes one if it
// may; else the value is invalid.
func (f *schemaField) fieldValueIn(root reflect.Value, make bool) reflect.Value {
	v := root
	for _, i := range f.structFieldIndex {
		v = v.Field(i)
		if v.Kind() != reflect.Pointer {
			continue
		}
		if v.IsNil() && make {
			v.Set(reflect.New(v.Type().Elem()))
		}
		if v = v.Elem(); !v.IsValid() {
			break
		}
	}
	return v
}

// schema is the tree of keys of one configuration struct.
type schema struct {
	topLevelFields    []*schemaField
	leafFields        []*schemaField          // that hold a value, in the order of declaration
	fieldByKey        map[string]*schemaField // sections and leaves
	leafByEnvVariable map[string]*schemaField // leaves
}

var (
	durationType  = reflect.TypeFor[time.Duration]()
	byteSizeType  = reflect.TypeFor[spec.ByteSize]()
	secretType    = reflect.TypeFor[Secret]()
	oneOrMoreType = reflect.TypeFor[OneOrMore]()
)

// newSchema reads the keys off the struct type t. It panics on a struct that cannot be a configuration.
func newSchema(t reflect.Type) schema { return newSectionSchema(t, "") }

// newSectionSchema is newSchema of a struct whose keys have a path before them.
func newSectionSchema(t reflect.Type, path string) schema {
	s := schema{fieldByKey: map[string]*schemaField{}, leafByEnvVariable: map[string]*schemaField{}}
	s.topLevelFields = s.readStructFields(t, path, nil)
	return s
}

func (s *schema) readStructFields(t reflect.Type, section string, index []int) []*schemaField {
	var fields []*schemaField
	for i := range t.NumField() {
		sf := t.Field(i)
		if sf.Anonymous {
			fields = append(fields, s.readStructFields(sf.Type, section, append(index[:len(index):len(index)], i))...)
			continue
		}
		name, _, _ := strings.Cut(sf.Tag.Get("yaml"), ",")
		if !sf.IsExported() || name == "-" {
			continue
		}
		if name == "" {
			panic(fmt.Sprintf("config: field %s.%s has no key: give it a yaml tag", t, sf.Name))
		}
		f := &schemaField{key: section + name, lastKeyPart: name, typ: sf.Type,
			structFieldIndex: append(index[:len(index):len(index)], i)}
		if f.typ.Kind() == reflect.Pointer && f.typ.Elem().Kind() == reflect.Struct {
			f.typ = f.typ.Elem()
		}
		fields = append(fields, f)
		s.fieldByKey[f.key] = f
		if f.isSectionField() {
			f.sectionFields = s.readStructFields(f.typ, f.key+".", f.structFieldIndex)
			continue
		}
		if !isSupportedType(f.typ) {
			panic(fmt.Sprintf("config: field %s.%s has the unsupported type %s", t, sf.Name, sf.Type))
		}
		if other := s.leafByEnvVariable[f.envVariable()]; other != nil {
			panic(fmt.Sprintf("config: the keys %s and %s have the same environment variable", other.key, f.key))
		}
		s.leafByEnvVariable[f.envVariable()] = f
		s.leafFields = append(s.leafFields, f)
	}
	return fields
}

func isSupportedType(t reflect.Type) bool {
	switch {
	case isTextParser(t):
		return true
	case t.Kind() == reflect.Slice && isSection(t.Elem()):
		newSchema(t.Elem()) // which panics if it is not
		return true
	case t.Kind() == reflect.Slice:
		return isSupportedType(t.Elem())
	case t.Kind() == reflect.Map:
		return t.Key().Kind() == reflect.String && isSupportedType(t.Elem())
	default:
		return describeExpectedForm(t) != ""
	}
}

func keysOf(fields []*schemaField) []string {
	keys := make([]string, len(fields))
	for i, f := range fields {
		keys[i] = f.key
	}
	return keys
}

// Change is a key whose values differ, as they are written.
type Change struct{ Key, Before, After string }

// Changes returns the keys whose values differ between two configurations, pointers to structs of one type, in the
// order of declaration. A section that is nil differs from any other in each of its keys that is set.
func Changes(a, b any) []Change {
	before, after := structValueOf(a), structValueOf(b)
	var all []Change
	for _, f := range newSchema(before.Type()).leafFields {
		was, is := f.valueOrZero(before), f.valueOrZero(after)
		if !writtenAlike(was, is) {
			all = append(all, Change{f.key, formatYAMLValue(was), formatYAMLValue(is)})
		}
	}
	return all
}

// writtenAlike reports whether two values of a key are written alike.
func writtenAlike(a, b reflect.Value) bool {
	return isEmptyCollection(a) && isEmptyCollection(b) || reflect.DeepEqual(a.Interface(), b.Interface())
}

// isEmptyCollection reports whether v is a list or a map without elements, which may be nil.
func isEmptyCollection(v reflect.Value) bool {
	return (v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.Len() == 0
}

// ChangedKeys returns the keys of Changes.
func ChangedKeys(a, b any) []string {
	var keys []string
	for _, c := range Changes(a, b) {
		keys = append(keys, c.Key)
	}
	return keys
}

// Setting is a key and its value, as it is written.
type Setting struct{ Key, Value string }

// Settings returns all keys of a configuration, a pointer to a struct, in the order of declaration.
func Settings(cfg any) []Setting {
	root := structValueOf(cfg)
	leaves := newSchema(root.Type()).leafFields
	all := make([]Setting, len(leaves))
	for i, f := range leaves {
		all[i] = Setting{f.key, formatYAMLValue(f.valueOrZero(root))}
	}
	return all
}

// valueOrZero returns the value of a leaf inside root: its zero value if a section on the way to it is nil.
func (f *schemaField) valueOrZero(root reflect.Value) reflect.Value {
	if v := f.fieldValueIn(root, false); v.IsValid() {
		return v
	}
	return reflect.Zero(f.typ)
}

// Keys returns the keys of a configuration, a pointer to a struct, that hold a value, in the order of declaration.
func Keys(cfg any) []string { return keysOf(newSchema(structValueOf(cfg).Type()).leafFields) }
