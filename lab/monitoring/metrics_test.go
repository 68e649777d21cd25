package monitoring

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fedmesh/fedmesh/metrics"
)

// knownMetrics maps each metric to its labels, and each label to its possible values; nil means any value.
type knownMetrics map[string]map[string][]string

// known returns the metrics that queries may use: the metrics in the table of docs/METRICS.md, the standard metrics of
// a process, and the metrics that Prometheus itself creates. A test of package metrics compares the table with the
// registries.
func known(table string, rules []Rule) (knownMetrics, error) {
	m := knownMetrics{"up": {}}
	row := regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\| (counter|gauge|histogram) \\| ([^|]*) \\|")
	for _, r := range row.FindAllStringSubmatch(table, -1) {
		labels := map[string][]string{}
		for part := range strings.SplitSeq(r[3], "; ") {
			name, values, _ := strings.Cut(strings.TrimSpace(part), ": ")
			if name = strings.Trim(name, "`"); name != "" && values != "" {
				labels[name] = strings.Split(values, ", ")
			} else if name != "" {
				labels[name] = nil
			}
		}
		m.add(r[1], r[2] == "histogram", labels)
	}
	if len(m) < 50 {
		return nil, fmt.Errorf("only %d metrics in the table", len(m))
	}
	descriptions := make(chan *prometheus.Desc, 1000)
	metrics.NewRegistry("process").Describe(descriptions)
	close(descriptions)
	for d := range descriptions {
		_, name, _ := strings.Cut(d.String(), `fqName: "`)
		name, _, _ = strings.Cut(name, `"`)
		m.add(name, false, map[string][]string{})
	}
	for _, r := range rules {
		if r.Record != "" {
			m[r.Record] = map[string][]string{}
		}
	}
	return m, nil
}

func (m knownMetrics) add(name string, histogram bool, labels map[string][]string) {
	m[name] = labels
	if !histogram {
		return
	}
	delete(m, name)
	m[name+"_sum"], m[name+"_count"] = labels, labels
	m[name+"_bucket"] = map[string][]string{"le": nil}
	for label, values := range labels {
		m[name+"_bucket"][label] = values
	}
}

// lint reports each metric, label and label value in an expression that none of the programs exports.
func (m knownMetrics) lint(expr string, say func(format string, args ...any)) {
	all := selectors(expr)
	if len(all) == 0 {
		say("selects nothing: %s", expr)
	}
	for _, s := range all {
		names := m.named(s)
		if len(names) == 0 {
			say("there is no metric %s", s.text())
		}
		for _, name := range names {
			m.lintMatchers(name, s, say)
		}
		counter := strings.HasSuffix(s.metric, "_total") || strings.HasSuffix(s.metric, "_sum") ||
			strings.HasSuffix(s.metric, "_bucket")
		if slices.Contains([]string{"rate", "increase", "irate"}, s.function) && !counter {
			say("%s of %s, which is no counter", s.function, s.metric)
		}
	}
}

// named returns the names of all known metrics that match a selector.
func (m knownMetrics) named(s selector) []string {
	if _, ok := m[s.metric]; ok {
		return []string{s.metric}
	}
	var all []string
	for _, x := range s.matchers {
		if form, err := regexp.Compile("^(?:" + x.value + ")$"); x.label == "__name__" && x.op == "=~" && err == nil {
			for name := range m {
				if form.MatchString(name) {
					all = append(all, name)
				}
			}
		}
	}
	return all
}

func (m knownMetrics) lintMatchers(name string, s selector, say func(format string, args ...any)) {
	for _, x := range s.matchers {
		values, known := m[name][x.label]
		if slices.Contains([]string{"job", "instance", "__name__"}, x.label) || known && values == nil {
			continue
		}
		form, err := regexp.Compile("^(?:" + x.value + ")$")
		switch {
		case !known:
			say("%s has no label %s", name, x.label)
		case err != nil:
			say("%s is no regular expression", x.value)
		case strings.Contains(x.op, "~") && !slices.ContainsFunc(values, form.MatchString),
			!strings.Contains(x.op, "~") && !slices.Contains(values, x.value):
			say("%s is never %s in %s", x.label, x.value, name)
		}
	}
}
