package monitoring

import (
	"slices"
	"testing"
)

func TestSelectors(t *testing.T) {
	for expr, want := range map[string][]string{
		`up == 0`:             {"up{}"},
		`absent(up{job="x"})`: {`up{job="x"}`},
		`sum by (a, b) (rate(m_total{x=~"a|b",y!="}"}[5m])) / on (a) group_left n`: {`m_total{x=~"a|b",y!="}"}[5m] in rate`, "n{}"},
		`sum(a) by (job) + 3e2 * b > bool 0.5 and c unless d offset 5m`:            {"a{}", "b{}", "c{}", "d{}"},
		`{__name__=~"a|b",job="$job"}`:                                             {`{__name__=~"a|b",job="$job"}`},
		`histogram_quantile(0.5, sum by (le) (rate(h_bucket[$__rate_interval])))`:  {`h_bucket{}[$__rate_interval] in rate`},
		`topk(10, label_replace(m, "a", "$1", "b", "(.*)"))`:                       {"m{} in label_replace"},
		`instance:a_b:ratio_rate5m < 0.5`:                                          {"instance:a_b:ratio_rate5m{}"},
		`time() - t{}`:                                                             {"t{}"},
	} {
		var got []string
		for _, s := range selectors(expr) {
			text := s.text() + s.rangeWindow
			if s.function == "rate" || s.function == "label_replace" {
				text += " in " + s.function
			}
			got = append(got, text)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s\n got %q\nwant %q", expr, got, want)
		}
	}
}
