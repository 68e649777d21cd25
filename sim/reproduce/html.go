package reproduce

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
)

//go:embed report.html.tmpl
var page string

// Outcome is a report and how long it took.
type Outcome struct {
	*Report
	Seconds float64 `json:"seconds"`
}

// WriteHTML writes one page, without anything outside of it, with all outcomes and their plots, which draw turns into SVG
// elements.
func WriteHTML(w io.Writer, outcomes []Outcome, draw func(Plot) ([]byte, error)) error {
	t, err := template.New("report").Funcs(template.FuncMap{
		"svg": func(p Plot) (template.HTML, error) {
			drawn, err := draw(p)
			if err != nil {
				return "", fmt.Errorf("plot %s: %w", p.Name, err)
			}
			return template.HTML(drawn), nil
		},
		"number": func(v *Values, key string) string {
			x, _ := v.Get(key)
			return fmt.Sprintf("%.6g", x)
		},
		"seconds": func(s float64) string { return fmt.Sprintf("%.1f s", s) },
	}).Parse(page)
	if err != nil {
		return err
	}
	holding, seconds := 0, 0.0
	for _, o := range outcomes {
		seconds += o.Seconds
		if o.Holds {
			holding++
		}
	}
	return t.Execute(w, map[string]any{"Outcomes": outcomes, "Holding": holding, "Seconds": math.Round(seconds)})
}
