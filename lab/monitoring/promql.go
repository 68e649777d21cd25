package monitoring

import (
	"regexp"
	"slices"
	"strings"
)

// selector is a selection of series in an expression.
type selector struct {
	metric      string // empty if only matchers choose
	matchers    []matcher
	rangeWindow string // the range, such as [5m]; empty for an instant
	function    string // that is applied to it at once, such as rate
}

// text is the selector as it stands in an expression, without a range.
func (s selector) text() string {
	parts := make([]string, len(s.matchers))
	for i, m := range s.matchers {
		parts[i] = m.label + m.op + `"` + m.value + `"`
	}
	return s.metric + "{" + strings.Join(parts, ",") + "}"
}

type matcher struct{ label, op, value string }

// Names in an expression that are no metrics.
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

// selectors finds the selections in an expression. It is no parser: promtool
// and Prometheus say whether an expression is one.
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

// matchersOf takes the matchers and the range off an expression that goes on with them.
func matchersOf(s selector, expr string) (selector, string) {
	if strings.HasPrefix(expr, "{") {
		expr = expr[1:]
		for {
			m := matcherForm.FindStringSubmatch(expr)
			if m == nil { // none, or one that only a parser could tell what is wrong with
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
