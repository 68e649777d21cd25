package config

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Write prints cfg, a pointer to a configuration struct, as YAML that [Load] reads back. Secrets that are set are
// redacted, and so are user and password in a URL; optional sections that are nil are left out. The error is that of w.
func Write(w io.Writer, cfg any) error {
	root := structOf(cfg)
	s := newSchema(root.Type())
	var b bytes.Buffer
	writeFields(&b, s.fields, root, "")
	_, err := w.Write(b.Bytes())
	return err
}

// writeFields prints the fields of one struct.
func writeFields(b *bytes.Buffer, fields []*field, section reflect.Value, indent string) {
	for _, f := range fields {
		v := section.Field(f.index[len(f.index)-1])
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				continue
			}
			v = v.Elem()
		}
		b.WriteString(indent + writeText(f.name) + ":")
		if !f.section() {
			b.WriteString(" " + writeValue(v) + "\n")
			continue
		}
		head := b.Len()
		b.WriteString("\n")
		writeFields(b, f.fields, v, indent+"  ")
		if b.Len() == head+1 { // every section in it is nil: without this, the key would read as empty
			b.Truncate(head)
			b.WriteString(" {}\n")
		}
	}
}

func writeValue(v reflect.Value) string {
	switch v.Type() {
	case durationType, byteSizeType, secretType:
		return writeText(fmt.Sprint(v.Interface()))
	}
	switch {
	case readsItself(v.Type()):
		return fmt.Sprint(v.Interface())
	case v.Type() == oneOrMoreType && v.Len() == 1:
		return writeValue(v.Index(0))
	case v.Kind() == reflect.Slice:
		elements := make([]string, v.Len())
		for i := range elements {
			elements[i] = writeValue(v.Index(i))
		}
		return "[" + strings.Join(elements, ", ") + "]"
	case v.Kind() == reflect.Map:
		table := map[string]string{}
		for name, value := range v.Seq2() {
			table[name.String()] = writeText(value.String())
		}
		entries := make([]string, 0, len(table))
		for _, name := range slices.Sorted(maps.Keys(table)) {
			entries = append(entries, writeText(name)+": "+table[name])
		}
		return "{" + strings.Join(entries, ", ") + "}"
	case v.Kind() == reflect.String:
		return writeText(credentials.ReplaceAllString(v.String(), "${1}"+redacted+"@"))
	case v.Kind() == reflect.Bool:
		return strconv.FormatBool(v.Bool())
	case v.CanInt():
		return strconv.FormatInt(v.Int(), 10)
	case v.CanUint():
		return strconv.FormatUint(v.Uint(), 10)
	default:
		return strconv.FormatFloat(v.Float(), 'g', -1, v.Type().Bits())
	}
}

// word is text that no YAML program takes for anything else, once the words in notWords are out.
var word = regexp.MustCompile(`^[0-9]*[A-Za-z_/][A-Za-z0-9_./-]*$`)

var notWords = []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}

// writeText writes text without quotes where that is safe.
func writeText(text string) string {
	safe := word.MatchString(text) && !(scalar{text, plain}).typed() &&
		!slices.Contains(notWords, strings.ToLower(text))
	if safe {
		return text
	}
	return strconv.Quote(text)
}
