package config

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
)

// setText sets a field from the environment or the command line.
func (l *loader) setText(f *field, text string, at origin) {
	// The elements and entries of an earlier source are gone with it.
	maps.DeleteFunc(l.origins, func(key string, _ origin) bool {
		return strings.HasPrefix(key, f.key+"[") || strings.HasPrefix(key, f.key+".")
	})
	l.origins[f.key] = at
	dst := f.in(l.root)
	switch kind := f.typ.Kind(); {
	case readsItself(f.typ):
		inner, list := strings.CutPrefix(text, "[")
		texts := []string{text}
		if list = list && strings.HasSuffix(inner, "]"); list {
			texts = splitList(strings.TrimSuffix(inner, "]"))
		}
		places := make([]origin, len(texts))
		for i := range places {
			places[i] = at
		}
		l.parse(f, dst, texts, list, places)
	case kind == reflect.Slice && f.typ.Elem().Kind() == reflect.Slice:
		l.failKey(at, f.key, "is a list of lists", "write it in the file")
	case kind == reflect.Slice:
		parts := splitList(text)
		list := reflect.MakeSlice(f.typ, len(parts), len(parts))
		for i, part := range parts {
			l.setPart(fmt.Sprintf("%s[%d]", f.key, i), part, list.Index(i), at)
		}
		dst.Set(list)
	case kind == reflect.Map:
		table := reflect.MakeMap(f.typ)
		for _, part := range splitList(text) {
			name, value, ok := strings.Cut(part, "=")
			key := reflect.ValueOf(name).Convert(f.typ.Key())
			switch {
			case !ok:
				l.failKey(at, f.key, "want name=value, got "+quote(part), "")
			case table.MapIndex(key).IsValid():
				l.failKey(at, f.key, "duplicate name "+quote(name), "")
			default:
				table.SetMapIndex(key, reflect.ValueOf(value).Convert(f.typ.Elem()))
			}
		}
		dst.Set(table)
	default:
		l.setPart(f.key, text, dst, at)
	}
}

func (l *loader) setPart(key, text string, dst reflect.Value, at origin) {
	if problem, hint := (scalar{text, bare}).set(dst); problem != "" {
		l.failKey(at, key, problem, hint)
	}
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
