package monitoring

import (
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
)

// mostPanels is the maximum number of panels in a dashboard.
const mostPanels = 20

// gridColumns is the width of a dashboard in columns.
const gridColumns = 24

// lintDashboards returns the problems found in the dashboards.
func lintDashboards(all []Dashboard, known knownMetrics, files fs.FS) []string {
	var wrong []string
	uids := map[string]string{}
	for _, d := range all {
		uids[d.UID] = d.File
	}
	if len(uids) != len(all) {
		wrong = append(wrong, "two dashboards have one uid")
	}
	for _, d := range all {
		say := func(format string, args ...any) { wrong = append(wrong, d.File+": "+fmt.Sprintf(format, args...)) }
		if d.UID == "" || d.Title == "" || d.Description == "" || d.SchemaVersion == 0 {
			say("needs a uid, a title, a description and a schemaVersion")
		}
		if d.Editable {
			say("is editable: changes in Grafana would be lost with the next version")
		}
		for _, link := range d.Links {
			uid, toDashboard := strings.CutPrefix(link.URL, "/d/")
			_, err := fs.Stat(files, runbook(link.URL))
			if uids[uid] == "" && toDashboard || err != nil && !toDashboard {
				say("links to %s, which does not exist", link.URL)
			}
		}
		lintVariables(&d, known, say)
		lintPanels(&d, known, say)
	}
	return wrong
}

func lintVariables(d *Dashboard, known knownMetrics, say func(string, ...any)) {
	var names []string
	for _, v := range d.Templating.List {
		names = append(names, v.Name)
		if v.Type == "datasource" {
			continue
		}
		if v.Datasource == nil || v.Datasource.UID != "${datasource}" {
			say("variable %s does not ask ${datasource}", v.Name)
		}
		query, _ := v.Query.(map[string]any)
		text, _ := query["query"].(string)
		m := regexp.MustCompile(`^label_values\((.+), [a-z]+\)$`).FindStringSubmatch(text)
		if m == nil {
			say("variable %s: the query %q is not label_values(metric, label)", v.Name, text)
			continue
		}
		known.lint(m[1], func(format string, args ...any) { say("variable "+v.Name+": "+format, args...) })
	}
	if !slices.Equal(names, []string{"datasource", "job", "instance"}) {
		say("has the variables %v, want datasource, job and instance", names)
	}
}

func lintPanels(d *Dashboard, known knownMetrics, say func(string, ...any)) {
	ids, drawn := map[int]bool{}, 0
	for i, p := range d.Panels {
		say := func(format string, args ...any) {
			say("panel %d (%s): %s", p.ID, p.Title, fmt.Sprintf(format, args...))
		}
		if p.ID <= 0 || ids[p.ID] {
			say("has an id that is not its own")
		}
		ids[p.ID] = true
		g := p.GridPos
		if g.X < 0 || g.Y < 0 || g.W <= 0 || g.H <= 0 || g.X+g.W > gridColumns {
			say("lies outside of the %d columns", gridColumns)
		}
		for _, other := range d.Panels[:i] {
			o := other.GridPos
			if g.X < o.X+o.W && o.X < g.X+g.W && g.Y < o.Y+o.H && o.Y < g.Y+g.H {
				say("overlaps panel %d", other.ID)
			}
		}
		if p.Title == "" {
			say("has no title")
		}
		if p.Type != "row" {
			drawn++
			lintPanel(&p, known, say)
		}
	}
	if drawn > mostPanels {
		say("%d panels are more than %d", drawn, mostPanels)
	}
}

func lintPanel(p *Panel, known knownMetrics, say func(string, ...any)) {
	if p.Description == "" {
		say("has no description")
	}
	if p.FieldConfig.Defaults.Unit == "" {
		say("has no unit")
	}
	if len(p.Targets) == 0 {
		say("has no query")
	}
	refs := map[string]bool{}
	for _, t := range p.Targets {
		if refs[t.RefID] || t.RefID == "" {
			say("query %q has a refId that is not its own", t.RefID)
		}
		refs[t.RefID] = true
		for _, ds := range []*datasource{p.Datasource, t.Datasource} {
			if ds == nil || ds.UID != "${datasource}" {
				say("query %s does not ask ${datasource}", t.RefID)
			}
		}
		if len(p.Targets) > 1 && (t.LegendFormat == "" || t.LegendFormat == "__auto") {
			say("query %s is one of several and has no legend", t.RefID)
		}
		known.lint(t.Expr, func(format string, args ...any) { say("query "+t.RefID+": "+format, args...) })
		for _, s := range selectors(t.Expr) {
			if s.rangeWindow != "" && s.rangeWindow != "[$__rate_interval]" {
				say("query %s: the range %s is fixed; use [$__rate_interval], which follows the zoom", t.RefID,
					s.rangeWindow)
			}
		}
	}
}

// lintRules returns problems of rules that promtool does not detect. tests is the text of the rules' tests.
func lintRules(all []Rule, known knownMetrics, files fs.FS, tests string) []string {
	var wrong []string
	seen := map[string]bool{}
	pages := map[string]bool{"runbooks/README.md": true}
	for _, r := range all {
		name := r.Record + r.Alert
		say := func(format string, args ...any) { wrong = append(wrong, name+": "+fmt.Sprintf(format, args...)) }
		if seen[name] {
			say("is there twice")
		}
		seen[name] = true
		known.lint(r.Expr, say)
		if r.Alert == "" {
			continue
		}
		if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) {
			say("has the severity %q", r.Labels["severity"])
		}
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" || r.For == "" {
			say("needs for, summary and description")
		}
		page := runbook(r.Annotations["runbook_url"])
		pages[page] = true
		if text, err := fs.ReadFile(files, page); err != nil || page != "runbooks/"+r.Alert+".md" {
			say("has no runbook at %s", r.Annotations["runbook_url"])
		} else if !strings.Contains(string(text), "`"+r.Expr+"`") {
			say("its runbook tells of another rule than %s", r.Expr)
		}
		if strings.Count(tests, "alertname: "+r.Alert+"\n") < 1 || strings.Count(tests, "alertname: "+r.Alert+",") < 1 {
			say("needs a test in which it fires, and one in which it does not")
		}
	}
	names, _ := fs.Glob(files, "runbooks/*.md") // Glob fails only for an invalid pattern.
	for _, name := range names {
		if !pages[name] {
			wrong = append(wrong, name+" is the page of no alert")
		}
	}
	return wrong
}

// runbook returns the path of an alert's runbook from its URL.
func runbook(url string) string {
	_, rest, _ := strings.Cut(url, "/packaging/monitoring/")
	return rest
}
