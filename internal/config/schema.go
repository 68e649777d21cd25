package config

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/spec"
)

// schemaField is one key of the configuration: a leaf with a value, or a section with subkeys.
type schemaField struct {
	key              string         // path from the root: "task.step_size"
	lastKeyPart      string         // last part of the path: "step_size"
	structFieldIndex []int          // index path of the struct field, from the root struct
	typ              reflect.Type   // type of the field, without the pointer of an optional section
	sectionFields    []*schemaField // fields of a section, in the order of declaration
}

func (f *schemaField) isSectionField() bool { return isSection(f.typ) }

func isSection(t reflect.Type) bool { return t.Kind() == reflect.Struct && !isTextParser(t) }

// envVariable returns the name of the environment variable that sets the leaf f, without the program's prefix.
func (f *schemaField) envVariable() string {
	return strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(f.key))
}

// fieldValueIn returns the value of field f in root. If a section on the path is a nil pointer, it creates the section
// if make is set; otherwise it returns the invalid reflect.Value.
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

// schema is the tree of keys of a configuration struct.
type schema struct {
	topLevelFields    []*schemaField
	leafFields        []*schemaField          // fields with a value, in the order of declaration
	fieldByKey        map[string]*schemaField // sections and leaves by key
	leafByEnvVariable map[string]*schemaField // leaves by environment variable
}

var (
	durationType  = reflect.TypeFor[time.Duration]()
	byteSizeType  = reflect.TypeFor[spec.ByteSize]()
	secretType    = reflect.TypeFor[Secret]()
	oneOrMoreType = reflect.TypeFor[OneOrMore]()
)

// newSchema derives the keys from the struct type t. newSchema panics if t is not a valid configuration.
func newSchema(t reflect.Type) schema { return newSectionSchema(t, "") }

// newSectionSchema derives the keys from the struct type of a section, like newSchema. path is the prefix of the
// section's keys.
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
		newSchema(t.Elem()) // panics if the type of the list element is not a valid section
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

// Change is a configuration key whose value has changed. Before and After are the values in YAML notation.
type Change struct{ Key, Before, After string }

// Changes returns the keys whose values differ between two configurations, in the order of declaration. a and b are
// pointers to structs of the same type. A nil section differs from another section in each key that is set.
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

// writtenAlike reports whether two values of a key have the same YAML notation. This makes nil lists and empty lists
// equal.
func writtenAlike(a, b reflect.Value) bool {
	return isEmptyCollection(a) && isEmptyCollection(b) || reflect.DeepEqual(a.Interface(), b.Interface())
}

// isEmptyCollection reports whether v is a nil or empty list or map.
func isEmptyCollection(v reflect.Value) bool {
	return (v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.Len() == 0
}

// ChangedKeys returns the keys whose values differ between two configurations (see [Changes]).
func ChangedKeys(a, b any) []string {
	var keys []string
	for _, c := range Changes(a, b) {
		keys = append(keys, c.Key)
	}
	return keys
}

// Setting is a configuration key and its value in YAML notation.
type Setting struct{ Key, Value string }

// Settings returns all keys of a configuration with their values, in order of declaration. cfg is a pointer to the
// configuration struct.
func Settings(cfg any) []Setting {
	root := structValueOf(cfg)
	leaves := newSchema(root.Type()).leafFields
	all := make([]Setting, len(leaves))
	for i, f := range leaves {
		all[i] = Setting{f.key, formatYAMLValue(f.valueOrZero(root))}
	}
	return all
}

// valueOrZero returns the value of a leaf inside root. It returns the zero value if a section on the path is nil.
func (f *schemaField) valueOrZero(root reflect.Value) reflect.Value {
	if v := f.fieldValueIn(root, false); v.IsValid() {
		return v
	}
	return reflect.Zero(f.typ)
}

// Keys returns the keys of a configuration that have a value, in the order of declaration. cfg is a pointer to a
// struct.
func Keys(cfg any) []string { return keysOf(newSchema(structValueOf(cfg).Type()).leafFields) }
