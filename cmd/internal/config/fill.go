package config

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Fill returns a commented sample file with other values of some keys. A key whose line is commented out, and the
// sections around it, lose their #. Comments stay, but not the marks (yours) and (example) of a key that is filled in,
// behind it or above. It panics if the sample has no such key: both are ours.
func Fill(sample []byte, values map[string]any) []byte {
	lines := strings.Split(string(sample), "\n")
	var path []string
	var at []int // the lines of the sections in path
	filled := map[string]bool{}
	for i, line := range lines {
		m := sampleKey.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		depth := len(m[1]+m[3]) / 2
		if depth > len(path) {
			continue // a sentence with a colon
		}
		path, at = append(path[:depth], m[4]), append(at[:depth], i)
		key := strings.Join(path, ".")
		v, given := values[key]
		if !given || filled[key] {
			continue
		}
		filled[key] = true
		for _, section := range at[:depth] {
			lines[section] = hidden.ReplaceAllString(lines[section], "$1")
		}
		lines[i] = fillLine(m, fillValue(v))
		lines[max(i-1, 0)] = markAbove.ReplaceAllString(lines[max(i-1, 0)], "$1")
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if !filled[key] {
			panic("config: the sample has no key " + key)
		}
	}
	return []byte(strings.Join(lines, "\n"))
}

// sampleKey is the line of a key: indentation, #, indentation below a section that is commented out, the key, its value
// and the comment behind it. A sentence has a blank behind its #, a key none or two of each section.
var sampleKey = regexp.MustCompile(`^( *)(#?)((?:  )*)(\w+):(.*?)(\s+# (?:\((?:yours|example)\) ?)?(.*))?$`)

// hidden is the begin of a line that is commented out.
var hidden = regexp.MustCompile(`^( *)#`)

// fillValue writes a value as people do, who put no URL in quotes.
func fillValue(v any) string {
	if text, ok := v.(string); ok && address.MatchString(text) {
		return text
	}
	return writeValue(reflect.ValueOf(v))
}

var address = regexp.MustCompile(`^[a-z]+://[A-Za-z0-9./_-]+:[0-9]+$`)

// markAbove is the mark in a comment of its own above a key.
var markAbove = regexp.MustCompile(`^( *# )\((?:yours|example)\) `)

// fillLine returns the line of a key with another value. The comment stays in its column, if the value leaves it room.
func fillLine(m []string, value string) string {
	line := fmt.Sprintf("%s%s%s: %s", m[1], m[3], m[4], value)
	if m[7] == "" {
		return line
	}
	column := utf8.RuneCountInString(m[0]) - utf8.RuneCountInString(strings.TrimLeft(m[6], " "))
	return line + strings.Repeat(" ", max(2, column-utf8.RuneCountInString(line))) + "# " + m[7]
}
