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

// FillSampleConfig returns a commented sample file with new values for some keys. If a changed key or the section
// around it is commented out, the function removes the comment sign. It keeps all comments, except the marks (yours)
// and (example) of a changed key. It panics if the sample does not contain a key, because the caller provides both.
func FillSampleConfig(sample []byte, values map[string]any) []byte {
	lines := strings.Split(string(sample), "\n")
	texts := map[string]string{}
	for key, v := range values {
		texts[key] = formatSampleValue(v)
	}
	fillLines(lines, texts, true)
	if len(texts) > 0 {
		panic("config: the sample configuration file has no key " + slices.Sorted(maps.Keys(texts))[0])
	}
	return []byte(strings.Join(lines, "\n"))
}

// fillLines writes values, as YAML, into the lines of their keys and removes the written values from the map. If
// commented is set, it also uses lines that are commented out.
func fillLines(lines []string, values map[string]string, commented bool) {
	var path []string
	var at []int // lines of the sections in path
	for i, line := range lines {
		m := sampleKeyPattern.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		depth := len(m[1]+m[3]) / 2
		if depth > len(path) {
			continue // not a key, but a sentence with a colon
		}
		path, at = append(path[:depth], m[4]), append(at[:depth], i)
		key := strings.Join(path, ".")
		value, given := values[key]
		if !given || !commented && slices.ContainsFunc(at,
			func(i int) bool { return commentedLinePattern.MatchString(lines[i]) }) {
			continue
		}
		delete(values, key)
		for _, section := range at[:depth] {
			lines[section] = commentedLinePattern.ReplaceAllString(lines[section], "$1")
		}
		lines[i] = replaceLineValue(m, value)
		lines[max(i-1, 0)] = exampleMarkPattern.ReplaceAllString(lines[max(i-1, 0)], "$1")
	}
}

// EditConfigText returns a configuration file with new values for some keys. The values use the syntax of the command
// line. All other text, including comments, is unchanged. fresh returns a pointer to a struct with the defaults; the
// struct must not have a Validate method. path names the file in errors. EditConfigText returns an error if a value is
// invalid or if the file cannot be edited automatically.
func EditConfigText(path string, file []byte, values map[string]string, fresh func() any) ([]byte, error) {
	before, after, is := fresh(), fresh(), fresh()
	err := Load(before, Source{Path: path, Text: file})
	if err == nil {
		err = Load(after, Source{Path: path, Text: file, Overrides: values})
	}
	if err != nil {
		return nil, err
	}
	text, byHand := applyChangesToText(file, Changes(before, after))
	if err := Load(is, Source{Path: path, Text: text}); err != nil || len(Changes(is, after)) > 0 {
		return nil, fmt.Errorf("cannot edit the configuration file %s automatically; set these keys by hand: %s", path,
			byHand)
	}
	return text, nil
}

// applyChangesToText returns the file's text with the changes applied. byHand lists the changes for an operator who
// must edit the file by hand.
func applyChangesToText(file []byte, changes []Change) (text []byte, byHand string) {
	values := map[string]string{}
	var all []string
	for _, c := range changes {
		values[c.Key] = c.After
		if u := strings.Trim(c.After, `"`); plainURLPattern.MatchString(u) {
			values[c.Key] = u
		}
		all = append(all, c.Key+": "+c.After)
	}
	lines := strings.Split(string(file), "\n")
	fillLines(lines, values, false)
	fillLines(lines, values, true)
	for _, key := range slices.Sorted(maps.Keys(values)) { // the remaining keys have no line in the file yet
		section, name, below := strings.Cut(key, ".")
		head := slices.Index(lines, section+":")
		end := len(lines)
		if lines[end-1] == "" {
			end--
		}
		switch {
		case !below:
			lines = slices.Insert(lines, end, key+": "+values[key])
		case head >= 0:
			lines = slices.Insert(lines, head+1, "  "+name+": "+values[key])
		default:
			lines = slices.Insert(lines, end, section+":", "  "+name+": "+values[key])
		}
	}
	return []byte(strings.Join(lines, "\n")), strings.Join(all, "; ")
}

// sampleKeyPattern matches the line of a key, which may be commented out. The groups are: the indentation, "#", the
// indentation after "#", the key, the value, the trailing comment, and the text of that comment. The indentation after
// "#" has two spaces per section, whereas a commented sentence starts with one space.
var sampleKeyPattern = regexp.MustCompile(`^( *)(#?)((?:  )*)(\w+):(.*?)(\s+# (?:\((?:yours|example)\) ?)?(.*))?$`)

// commentedLinePattern matches the beginning of a commented-out line.
var commentedLinePattern = regexp.MustCompile(`^( *)#`)

// formatSampleValue formats a value as in a handwritten file, with URLs unquoted.
func formatSampleValue(v any) string {
	if text, ok := v.(string); ok && plainURLPattern.MatchString(text) {
		return text
	}
	return formatYAMLValue(reflect.ValueOf(v))
}

var plainURLPattern = regexp.MustCompile(`^[a-z]+://[A-Za-z0-9./_-]+:[0-9]+$`)

// exampleMarkPattern matches the mark "(yours)" or "(example)" in the comment line above a key.
var exampleMarkPattern = regexp.MustCompile(`^( *# )\((?:yours|example)\) `)

// replaceLineValue returns a key's line with the new value. m is the match of sampleKeyPattern. A trailing comment
// stays in its column if the new value is short enough.
func replaceLineValue(m []string, value string) string {
	line := fmt.Sprintf("%s%s%s: %s", m[1], m[3], m[4], value)
	if m[7] == "" {
		return line
	}
	column := utf8.RuneCountInString(m[0]) - utf8.RuneCountInString(strings.TrimLeft(m[6], " "))
	return line + strings.Repeat(" ", max(2, column-utf8.RuneCountInString(line))) + "# " + m[7]
}
