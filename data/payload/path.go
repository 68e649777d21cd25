package payload

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/fedmesh/fedmesh/data"
)

// Path is the path of values in a tree of objects and lists. The empty path is the whole tree.
//
// A path consists of segments that are separated by dots:
//   - a member name or an element number from 0, as in sensors.0.value
//   - "*", which selects all members or elements
//   - conditions in brackets, which select the members or elements with this value: metrics[name=Temperature].value
//
// A backslash escapes one of the characters . \ [ ] = * in a name. A bracket without a condition is part of a name.
type Path []segment

// segment is one step of a path.
type segment struct {
	name       string
	isWildcard bool
	conditions []condition // if not empty, the segment selects the members or elements that satisfy all conditions
}

// condition is a condition on the value of one member of an object, or on the value of one label of a reading.
type condition struct {
	key   Path
	value string
}

// MemberPath returns the path of a member of the root object.
func MemberPath(name string) Path { return Path{{name: name}} }

// ParsePath parses a path.
func ParsePath(text string) (Path, error) {
	if text == "" {
		return nil, nil
	}
	var p Path
	var name strings.Builder
	escaped, afterCondition := false, false // whether the name contains an escaped character; whether a condition ended
	end := func() error {
		switch {
		case name.Len() == 0 && !afterCondition:
			return fmt.Errorf("the JSON path %s contains an empty name", data.QuoteForMessage(text))
		case name.Len() > 0:
			p = append(p, segment{name: name.String(), isWildcard: name.String() == "*" && !escaped})
		}
		name.Reset()
		escaped, afterCondition = false, false
		return nil
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '\\':
			if i++; i == len(text) {
				return nil, fmt.Errorf("the JSON path %s must not end with a backslash", data.QuoteForMessage(text))
			} else if strings.IndexByte(`.\[]=*`, text[i]) < 0 {
				return nil, fmt.Errorf(
					`the JSON path %s: a backslash is only allowed before one of the characters . \ [ ] = *`,
					data.QuoteForMessage(text))
			}
			escaped = true
			name.WriteByte(text[i])
		case '.':
			if err := end(); err != nil {
				return nil, err
			}
		case '[':
			of, length := parseConditions(text[i:])
			if rest := text[i+length:]; length == 0 || rest != "" && rest[0] != '.' {
				name.WriteByte(c)
				continue
			}
			afterCondition = true
			if err := end(); err != nil {
				return nil, err
			}
			p = append(p, segment{conditions: of})
			i += length - 1
			afterCondition = true
		default:
			name.WriteByte(c)
		}
	}
	return p, end()
}

// parseConditions parses the conditions [KEY=VALUE][KEY=VALUE]… at the start of text and returns their length in bytes.
// The length is 0 if text does not start with a condition.
func parseConditions(text string) (all []condition, length int) {
	for strings.HasPrefix(text[length:], "[") {
		c, n := parseCondition(text[length:])
		if n == 0 {
			break
		}
		all, length = append(all, c), length+n
	}
	return all, length
}

// parseCondition parses the condition [KEY=VALUE] at the start of text and returns its length in bytes, or 0.
func parseCondition(text string) (c condition, length int) {
	var value strings.Builder
	key := ""
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == '\\' && i+1 < len(text):
			if key == "" {
				value.WriteByte('\\') // ParsePath handles the escape sequences of the key
			}
			i++
			value.WriteByte(text[i])
		case text[i] == '=' && key == "":
			if key = value.String(); key == "" {
				return condition{}, 0
			}
			value.Reset()
		case text[i] == ']':
			of, err := ParsePath(key)
			if key == "" || err != nil {
				return condition{}, 0
			}
			return condition{of, value.String()}, i + 1
		default:
			value.WriteByte(text[i])
		}
	}
	return condition{}, 0
}

// String returns the path as text that ParsePath accepts.
func (p Path) String() string {
	var b strings.Builder
	for i, s := range p {
		if i > 0 && (len(s.conditions) == 0 || len(p[i-1].conditions) > 0) {
			b.WriteByte('.')
		}
		switch {
		case s.isWildcard:
			b.WriteByte('*')
		case s.name == "*":
			b.WriteString(`\*`)
		default:
			b.WriteString(nameEscaper.Replace(s.name))
		}
		for _, c := range s.conditions {
			b.WriteString(conditionText(c))
		}
	}
	return b.String()
}

// conditionText returns a condition as text that parseCondition accepts.
func conditionText(c condition) string {
	return "[" + c.key.String() + "=" + valueEscaper.Replace(c.value) + "]"
}

var (
	nameEscaper  = strings.NewReplacer(`\`, `\\`, `.`, `\.`, `[`, `\[`, `]`, `\]`, `=`, `\=`)
	valueEscaper = strings.NewReplacer(`\`, `\\`, `]`, `\]`)
)

// FirstName returns the name of the first segment. It returns "" if the path is empty or does not start with a name.
func (p Path) FirstName() string {
	if len(p) == 0 {
		return ""
	}
	return p[0].name
}

// hasWildcard reports whether the path contains a wildcard.
func (p Path) hasWildcard() bool {
	return slices.ContainsFunc(p, func(s segment) bool { return s.isWildcard })
}

// boundTo replaces each wildcard of the path with the key at the same level of place. For example, the path *.time,
// bound to the place of temperature.value, is temperature.time.
func (p Path) boundTo(place []string) Path {
	bound := slices.Clone(p)
	for i := range bound {
		if bound[i].isWildcard && i < len(place) {
			bound[i] = segment{name: place[i]}
		}
	}
	return bound
}

// first returns the first value that the path selects. found is false if it selects none.
func (p Path) first(tree any) (value any, found bool) {
	p.selectIn(tree, nil, func(v any, _ []string) bool {
		value, found = v, true
		return false
	})
	return value, found
}

// selectIn calls yield with each value that the path selects, until yield returns false. The order is the order of
// lists and of sorted member names. place contains the member names and element numbers that lead to the value.
func (p Path) selectIn(tree any, place []string, yield func(v any, place []string) bool) bool {
	if len(p) == 0 {
		return yield(tree, place)
	}
	s := p[0]
	if !s.isWildcard && len(s.conditions) == 0 {
		v, found := child(tree, s.name)
		return !found || p[1:].selectIn(v, append(place, s.name), yield)
	}
	visit := func(key string, v any) bool {
		return !s.accepts(v) || p[1:].selectIn(v, append(place, key), yield)
	}
	switch of := tree.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(of)) {
			if !visit(key, of[key]) {
				return false
			}
		}
	case []any:
		for i, v := range of {
			if !visit(strconv.Itoa(i), v) {
				return false
			}
		}
	}
	return true
}

// child returns the member of an object or the element of a list.
func child(tree any, key string) (v any, found bool) {
	switch of := tree.(type) {
	case map[string]any:
		v, found = of[key]
	case []any:
		i, err := strconv.ParseUint(key, 10, 31)
		if found = err == nil && i < uint64(len(of)); found {
			v = of[i]
		}
	}
	return v, found
}

// accepts reports whether a member or element satisfies all conditions.
func (s *segment) accepts(v any) bool {
	for _, c := range s.conditions {
		got, found := c.key.first(v)
		if !found || ValueText(got) != c.value {
			return false
		}
	}
	return true
}
