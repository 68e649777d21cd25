package config

import (
	"bytes"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/token"
)

// WriteYAML writes cfg, a pointer to a configuration struct, as YAML that [Load] can read. Secrets are redacted,
// including user and password in URLs. Optional sections that are nil are omitted. Errors come from w.
func WriteYAML(w io.Writer, cfg any) error {
	root := structValueOf(cfg)
	s := newSchema(root.Type())
	var b bytes.Buffer
	writeFields(&b, s.topLevelFields, root, "")
	_, err := w.Write(b.Bytes())
	return err
}

// writeFields writes the fields of one struct inside root.
func writeFields(b *bytes.Buffer, fields []*schemaField, root reflect.Value, indent string) {
	for _, f := range fields {
		v := f.fieldValueIn(root, false)
		if !v.IsValid() {
			continue
		}
		b.WriteString(indent + formatYAMLText(f.lastKeyPart) + ":")
		if !f.isSectionField() {
			writeLeaf(b, root, v, indent)
			continue
		}
		head := b.Len()
		b.WriteString("\n")
		writeFields(b, f.sectionFields, root, indent+"  ")
		if b.Len() == head+1 { // all subsections are nil: write {} so that the key is not read as empty
			b.Truncate(head)
			b.WriteString(" {}\n")
		}
	}
}

// writeLeaf writes the value of a key. For a list of sections, it writes one line per entry. If the entries inherit
// values from the whole configuration, it writes one line per key of an entry.
func writeLeaf(b *bytes.Buffer, root, v reflect.Value, indent string) {
	if v.Kind() != reflect.Slice || !isSection(v.Type().Elem()) || v.Len() == 0 {
		b.WriteString(" " + formatYAMLValue(v) + "\n")
		return
	}
	b.WriteString("\n")
	_, _, inherits := sharedEmbeddedField(root.Type(), v.Type().Elem())
	for i := range v.Len() {
		if !inherits {
			b.WriteString(indent + "  - " + formatYAMLValue(v.Index(i)) + "\n")
			continue
		}
		at := b.Len()
		writeFields(b, newSchema(v.Type().Elem()).topLevelFields, v.Index(i), indent+"    ")
		b.Bytes()[at+len(indent)+2] = '-'
	}
}

func formatYAMLValue(v reflect.Value) string {
	t := v.Type()
	switch {
	case t == durationType || t == byteSizeType || t == secretType:
		return formatYAMLText(fmt.Sprint(v.Interface()))
	case isTextParser(t):
		return fmt.Sprint(v.Interface())
	case t == oneOrMoreType && v.Len() == 1:
		return formatYAMLValue(v.Index(0))
	case v.Kind() == reflect.Slice:
		elements := make([]string, v.Len())
		for i := range elements {
			elements[i] = formatYAMLValue(v.Index(i))
		}
		return "[" + strings.Join(elements, ", ") + "]"
	case v.Kind() == reflect.Struct: // the struct is an entry of a list
		var entries []string
		for _, f := range newSchema(t).topLevelFields {
			if x := f.fieldValueIn(v, false); x.IsValid() && !x.IsZero() {
				entries = append(entries, formatYAMLText(f.lastKeyPart)+": "+formatYAMLValue(x))
			}
		}
		return "{" + strings.Join(entries, ", ") + "}"
	case v.Kind() == reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		var entries []string
		for _, key := range keys {
			entries = append(entries, formatYAMLText(key.String())+": "+formatYAMLValue(v.MapIndex(key)))
		}
		return "{" + strings.Join(entries, ", ") + "}"
	case v.Kind() == reflect.String:
		return formatYAMLText(urlCredentialsPattern.ReplaceAllString(v.String(), "${1}"+redacted+"@"))
	default:
		return fmt.Sprint(v.Interface())
	}
}

// formatYAMLText returns a text in YAML notation. It omits the quotes if every YAML parser reads the unquoted text as a
// string.
func formatYAMLText(text string) string {
	if !unquotedTextPattern.MatchString(text) || token.IsNeedQuoted(strings.ToLower(text)) || (scalar{text,
		plainStyle}).isNumberOrBool() {
		return strconv.Quote(text)
	}
	return text
}

var unquotedTextPattern = regexp.MustCompile(`^[A-Za-z0-9_/][A-Za-z0-9_./-]*$`)
