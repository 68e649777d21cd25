package monitoring

import (
	"regexp"
	"slices"
	"strings"
)

// selector is a series selector in a PromQL expression, such as up{job="a"}[5m].
type selector struct {
	metric      string // name of the metric; empty if the selector has only matchers
	matchers    []matcher
	rangeWindow string // range such as [5m]; empty for an instant vector
	function    string // function that is applied directly to the selector, such as rate
}

// text returns the selector in PromQL syntax, without the range.
func (s selector) text() string {
	parts := make([]string, len(s.matchers))
	for i, m := range s.matchers {
		parts[i] = m.label + m.op + `"` + m.value + `"`
	}
	return s.metric + "{" + strings.Join(parts, ",") + "}"
}

type matcher struct{ label, op, value string }

// Words in PromQL expressions that are not metric names: operators, keywords and functions.
var (
	operators   = []string{"and", "or", "unless", "bool", "offset", "atan2", "inf", "nan", "Inf", "NaN"}
	groupings   = []string{"by", "without", "on", "ignoring", "group_left", "group_right"}
	aggregators = []string{"sum", "min", "max", "avg", "group", "stddev", "stdvar", "count", "count_values", "bottomk",
		"topk", "quantile"}
)

var (
	nameForm    = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*`)
	numberForm  = regexp.MustCompile(`^[0-9.][0-9a-zA-Z.]*`)
	rangeForm   = regexp.MustCompile(`^\s*\[[^\]]*\]`)
	matcherForm = regexp.MustCompile(`^\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"\s*(,|\})`)
)

// selectors returns the series selectors in a PromQL expression. It does not validate the syntax, because other tests
// run promtool and Prometheus on all expressions.
func selectors(expr string) []selector {
	var all []selector
	function := ""
	for expr != "" {
		switch c := expr[0]; {
		case c == '"':
			end := strings.IndexByte(expr[1:], '"')
			expr = expr[1+end+1:]
		case c == '{':
			var s selector
			s, expr = matchersOf(selector{function: function}, expr)
			all, function = append(all, s), ""
		case nameForm.MatchString(expr):
			name := nameForm.FindString(expr)
			expr = strings.TrimLeft(expr[len(name):], " \n")
			switch {
			case slices.Contains(groupings, name):
				if strings.HasPrefix(expr, "(") {
					expr = expr[strings.IndexByte(expr, ')')+1:]
				}
			case slices.Contains(operators, name), slices.Contains(aggregators, name):
			case strings.HasPrefix(expr, "("):
				function, expr = name, expr[1:]
				continue
			default:
				var s selector
				s, expr = matchersOf(selector{metric: name, function: function}, expr)
				all, function = append(all, s), ""
			}
		case numberForm.MatchString(expr):
			expr = expr[len(numberForm.FindString(expr)):]
		default:
			if c != ' ' && c != '\n' {
				function = ""
			}
			expr = expr[1:]
		}
	}
	return all
}

// matchersOf parses the label matchers and the range at the start of expr into a copy of s. matchersOf returns the copy
// and the rest of expr.
func matchersOf(s selector, expr string) (selector, string) {
	if strings.HasPrefix(expr, "{") {
		expr = expr[1:]
		for {
			m := matcherForm.FindStringSubmatch(expr)
			// No matcher follows. Syntax errors are not reported here, because promtool reports them.
			if m == nil {
				_, expr, _ = strings.Cut(expr, "}")
				break
			}
			s.matchers = append(s.matchers, matcher{m[1], m[2], m[3]})
			expr = expr[len(m[0]):]
			if m[4] == "}" {
				break
			}
		}
	}
	s.rangeWindow = strings.TrimSpace(rangeForm.FindString(expr))
	return s, expr[len(rangeForm.FindString(expr)):]
}
