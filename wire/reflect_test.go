package wire_test

import (
	"fmt"
	"reflect"
)

// eachField calls visit for every field in the value that m points to, including the elements of lists, so that fields
// that are added later are tested too. The function visit may change the field; eachField restores the old value
// afterwards.
func eachField(m any, visit func(path string, field reflect.Value)) {
	walk("", reflect.ValueOf(m).Elem(), visit)
}

func walk(path string, v reflect.Value, visit func(string, reflect.Value)) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			walk(path+"."+v.Type().Field(i).Name, v.Field(i), visit)
		}
	case reflect.Slice:
		for i := range v.Len() {
			walk(fmt.Sprintf("%s[%d]", path, i), v.Index(i), visit)
		}
	default:
		was := reflect.ValueOf(v.Interface())
		visit(path, v)
		v.Set(was)
	}
}
