package config

import "reflect"

// Changed returns the keys whose values differ between two configurations,
// pointers to structs of one type, in the order of declaration. A section that
// is nil differs from any other in each of its keys that is set.
func Changed(a, b any) []string {
	before, after := structOf(a), structOf(b)
	s := newSchema(before.Type())
	var keys []string
	for _, f := range s.leaves() {
		if !reflect.DeepEqual(f.value(before), f.value(after)) {
			keys = append(keys, f.key)
		}
	}
	return keys
}

// value returns the value of a leaf inside root: its zero value if a section
// on the way to it is nil.
func (f *field) value(root reflect.Value) any {
	v := root
	for _, i := range f.index {
		v = v.Field(i)
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return reflect.Zero(f.typ).Interface()
			}
			v = v.Elem()
		}
	}
	return v.Interface()
}
