package reproduce

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"math"
)

//go:embed report.html.tmpl
var reportTemplate string

// Outcome is a report with its duration and settings.
type Outcome struct {
	*Report
	Seconds  float64    `json:"seconds"`
	Settings Experiment `json:"settings"`
}

// writeHTML writes a self-contained page with all outcomes and their plots.
func writeHTML(w io.Writer, o Options, outcomes []Outcome) error {
	t, err := template.New("report").Funcs(template.FuncMap{
		"svg": func(p Plot) (template.HTML, error) {
			drawn, err := p.SVG()
			_, element, _ := bytes.Cut(drawn, []byte("?>")) // remove the XML declaration
			return template.HTML(element), err
		},
		"number": func(v *Values, key string) string {
			x, _ := v.Get(key)
			return fmt.Sprintf("%.6g", x)
		},
		"settings": func(e Experiment) (string, error) {
			text, err := json.MarshalIndent(e, "", " ")
			return string(text), err
		},
		"holding": func(findings []Finding) (n int) {
			for _, f := range findings {
				if f.Holds {
					n++
				}
			}
			return n
		},
		"seconds": func(s float64) string { return fmt.Sprintf("%.1f s", s) },
	}).Parse(reportTemplate)
	if err != nil {
		return err
	}
	holding, seconds := 0, 0.0
	for _, outcome := range outcomes {
		seconds += outcome.Seconds
		if outcome.Holds {
			holding++
		}
	}
	return t.Execute(w, map[string]any{"Options": o, "Outcomes": outcomes, "Holding": holding,
		"Seconds": math.Round(seconds)})
}
