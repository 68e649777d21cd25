package config

import (
	"fmt"
	"reflect"
	"strings"
	"time"
)

// field is one key of the configuration: a leaf with a value, or a section with keys of its own.
type field struct {
	key    string       // path from the root: "task.step_size"
	name   string       // its last part: "step_size"
	index  []int        // of the struct field, from the root
	typ    reflect.Type // without the pointer of an optional section
	fields []*field     // of a section, in the order of declaration
}

func (f *field) section() bool { return f.typ.Kind() == reflect.Struct && !readsItself(f.typ) }

func (f *field) secret() bool { return f.typ == secretType }

// variable returns the environment variable of a leaf, without the prefix.
func (f *field) variable() string { return strings.ToUpper(variableReplacer.Replace(f.key)) }

var variableReplacer = strings.NewReplacer(".", "_", "-", "_")

// in returns the settable value of f inside root, allocating the optional sections on the way to it.
func (f *field) in(root reflect.Value) reflect.Value {
	v := root
	for _, i := range f.index {
		v = v.Field(i)
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
	}
	return v
}

// schema is the tree of keys of one configuration struct.
type schema struct {
	fields []*field
	byKey  map[string]*field // sections and leaves
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	byteSizeType = reflect.TypeFor[ByteSize]()
	secretType   = reflect.TypeFor[Secret]()
)

// newSchema reads the keys off the struct type t. It panics on a struct that cannot be a configuration.
func newSchema(t reflect.Type) schema {
	s := schema{byKey: map[string]*field{}}
	s.fields = s.read(t, "", nil)
	byVariable := map[string]*field{}
	for _, f := range s.leaves() {
		if other := byVariable[f.variable()]; other != nil {
			panic(fmt.Sprintf("config: the keys %s and %s have the same environment variable", other.key, f.key))
		}
		byVariable[f.variable()] = f
	}
	return s
}

func (s *schema) read(t reflect.Type, section string, index []int) []*field {
	var fields []*field
	for i := range t.NumField() {
		sf := t.Field(i)
		name, _, _ := strings.Cut(sf.Tag.Get("yaml"), ",")
		if !sf.IsExported() || name == "-" {
			continue
		}
		if name == "" {
			panic(fmt.Sprintf("config: field %s.%s has no key: give it a yaml tag", t, sf.Name))
		}
		f := &field{key: section + name, name: name, typ: sf.Type, index: append(index[:len(index):len(index)], i)}
		if f.typ.Kind() == reflect.Pointer && f.typ.Elem().Kind() == reflect.Struct {
			f.typ = f.typ.Elem()
		}
		if s.byKey[f.key] != nil {
			panic("config: two fields have the key " + f.key)
		}
		s.byKey[f.key] = f
		if f.section() {
			f.fields = s.read(f.typ, f.key+".", f.index)
		} else if !supported(f.typ) {
			panic(fmt.Sprintf("config: field %s.%s has the unsupported type %s", t, sf.Name, sf.Type))
		}
		fields = append(fields, f)
	}
	return fields
}

func supported(t reflect.Type) bool {
	if readsItself(t) {
		return true
	}
	switch t.Kind() {
	case reflect.String, reflect.Bool, reflect.Float32, reflect.Float64,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return true
	case reflect.Slice:
		switch e := t.Elem(); e.Kind() {
		case reflect.String, reflect.Int, reflect.Float64:
			return true
		default:
			return e.Kind() == reflect.Slice && e.Elem().Kind() == reflect.Float64
		}
	case reflect.Map:
		return t.Key().Kind() == reflect.String && t.Elem().Kind() == reflect.String
	default:
		return false
	}
}

// leaves returns the fields that hold a value, in the order of declaration.
func (s *schema) leaves() []*field {
	var leaves []*field
	var walk func(fields []*field)
	walk = func(fields []*field) {
		for _, f := range fields {
			if f.section() {
				walk(f.fields)
			} else {
				leaves = append(leaves, f)
			}
		}
	}
	walk(s.fields)
	return leaves
}

func keysOf(fields []*field) []string {
	keys := make([]string, len(fields))
	for i, f := range fields {
		keys[i] = f.key
	}
	return keys
}
