package monitoring

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/packaging/monitoring"
)

const folder = "../../packaging/monitoring"

type shipped struct {
	dashboards []Dashboard
	rules      []Rule
	tests      string
	known      knownMetrics
}

func load(t *testing.T) (s shipped) {
	t.Helper()
	var err error
	must := func() {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	s.dashboards, err = Dashboards(monitoring.Files)
	must()
	s.rules, err = Rules(monitoring.Files)
	must()
	tests, err := monitoring.Files.ReadFile("tests/alerts_test.yml")
	s.tests = string(tests)
	must()
	table, err := os.ReadFile("../../docs/METRICS.md")
	must()
	s.known, err = known(string(table), s.rules)
	must()
	return s
}

// TestDashboards lints the seven dashboards that we ship.
func TestDashboards(t *testing.T) {
	s := load(t)
	if len(s.dashboards) != 7 {
		t.Errorf("%d dashboards, want Cluster, Device, D2D, Federation, Learning, Predictions and Values",
			len(s.dashboards))
	}
	for _, wrong := range lintDashboards(s.dashboards, s.known, monitoring.Files) {
		t.Error(wrong)
	}
}

// TestRules lints the rules that we ship.
func TestRules(t *testing.T) {
	s := load(t)
	for _, wrong := range lintRules(s.rules, s.known, monitoring.Files, s.tests) {
		t.Error(wrong)
	}
}

// TestLintIsRed checks that the linter detects each kind of problem. TestLintIsRed modifies copies of the shipped
// dashboards and rules.
func TestLintIsRed(t *testing.T) {
	first := func(d *Dashboard) *Panel { return &d.Panels[1] }
	for want, damage := range map[string]func(d *Dashboard){
		"two dashboards have one uid":   func(d *Dashboard) { d.UID = "fedmesh-d2d" },
		"needs a uid":                   func(d *Dashboard) { d.Description = "" },
		"is editable":                   func(d *Dashboard) { d.Editable = true },
		"which does not exist":          func(d *Dashboard) { d.Links[0].URL = "/d/elsewhere" },
		"has the variables":             func(d *Dashboard) { d.Templating.List = d.Templating.List[:2] },
		"is not label_values":           func(d *Dashboard) { d.Templating.List[1].Query = "up" },
		"does not ask ${datasource}":    func(d *Dashboard) { first(d).Targets[0].Datasource.UID = "mine" },
		"has an id that is not its own": func(d *Dashboard) { first(d).ID = 1 },
		"lies outside":                  func(d *Dashboard) { first(d).GridPos.X = 22 },
		"overlaps panel":                func(d *Dashboard) { d.Panels[2].GridPos.X = 0 },
		"has no title":                  func(d *Dashboard) { first(d).Title = "" },
		"has no description":            func(d *Dashboard) { first(d).Description = "" },
		"has no unit":                   func(d *Dashboard) { first(d).FieldConfig.Defaults.Unit = "" },
		"has no query":                  func(d *Dashboard) { first(d).Targets = nil },
		"a refId that is not its own":   func(d *Dashboard) { first(d).Targets[0].RefID = "" },
		"has no legend": func(d *Dashboard) {
			first(d).Targets = append(first(d).Targets,
				Target{RefID: "B"})
		},
		"use [$__rate_interval]": func(d *Dashboard) {
			first(d).
				Targets[0].Expr = "rate(coordinator_reports_total[5m])"
		},
		"there is no metric coordinator_rund{}": func(d *Dashboard) { first(d).Targets[0].Expr = "coordinator_rund" },
		"has no label colour": func(d *Dashboard) {
			first(d).
				Targets[0].Expr = `coordinator_phase{colour="red"}`
		},
		"phase is never drinking": func(d *Dashboard) {
			first(d).
				Targets[0].Expr = `coordinator_phase{phase="drinking"}`
		},
		"which is no counter": func(d *Dashboard) {
			first(d).
				Targets[0].Expr = "rate(coordinator_round[$__rate_interval])"
		},
		"there is no metric {__name__=~\"x.*\"}": func(d *Dashboard) { first(d).Targets[0].Expr = `{__name__=~"x.*"}` },
		"selects nothing":                        func(d *Dashboard) { first(d).Targets[0].Expr = "1 + 1" },
		"panels are more than 20": func(d *Dashboard) {
			for range 20 {
				d.Panels = append(d.Panels, *first(d))
			}
		},
	} {
		s := load(t)
		damage(&s.dashboards[2])
		expect(t, want, lintDashboards(s.dashboards, s.known, monitoring.Files))
	}
	for want, damage := range map[string]func(s *shipped){
		"is there twice":         func(s *shipped) { s.rules = append(s.rules, s.rules[0]) },
		"has the severity":       func(s *shipped) { s.rules[0].Labels["severity"] = "urgent" },
		"needs for, summary":     func(s *shipped) { s.rules[0].For = "" },
		"has no runbook at":      func(s *shipped) { s.rules[0].Annotations["runbook_url"] += "x" },
		"tells of another rule":  func(s *shipped) { s.rules[0].Expr += " > 0" },
		"needs a test in which":  func(s *shipped) { s.tests = strings.Replace(s.tests, s.rules[0].Alert, "Other", 2) },
		"is the page of no":      func(s *shipped) { s.rules = s.rules[1:] },
		"there is no metric ups": func(s *shipped) { s.rules[0].Expr = "ups" },
	} {
		s := load(t)
		damage(&s)
		expect(t, want, lintRules(s.rules, s.known, monitoring.Files, s.tests))
	}
}

func expect(t *testing.T, want string, wrong []string) {
	t.Helper()
	if !strings.Contains(strings.Join(wrong, "\n"), want) {
		t.Errorf("nobody says that something %q; said was\n%s", want, strings.Join(wrong, "\n"))
	}
}

// TestProvisioning checks that the default data source of the dashboards is the data source that the provisioning file
// creates.
func TestProvisioning(t *testing.T) {
	source, err := monitoring.Files.ReadFile("grafana/provisioning/datasources/fedmesh.yml")
	if err != nil {
		t.Fatal(err)
	}
	text, err := monitoring.Files.ReadFile("grafana/dashboards/federation.json")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(source), "uid: fedmesh-prometheus\n") ||
		!strings.Contains(string(text), `"value": "fedmesh-prometheus"`) {
		t.Error("federation.json and the provided data source do not agree on its uid")
	}
}

// TestPromtool checks the configuration and the rules with promtool, and runs the rules' tests.
func TestPromtool(t *testing.T) {
	if testing.Short() {
		t.Skip("promtool is a process")
	}
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not here: install Debian's package prometheus")
	}
	for _, args := range [][]string{
		{"check", "config", "prometheus.yml"},
		{"check", "rules", "--lint-fatal", "rules/recording.yml", "rules/alerts.yml"},
		{"test", "rules", "tests/alerts_test.yml"},
	} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = folder
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// TestPrometheusIsNotSteered checks that all scrape addresses in the shipped configuration belong to the coordinator,
// so that agents cannot make Prometheus scrape other hosts.
func TestPrometheusIsNotSteered(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(folder, "prometheus.yml"))
	if err != nil {
		t.Fatal(err)
	}
	lists := 0
	for line := range strings.Lines(string(text)) {
		if asked := strings.TrimSpace(line); strings.HasPrefix(asked, "- url:") {
			lists++
			if !strings.HasSuffix(asked, "/sd/agents?via=coordinator") {
				t.Errorf("%s: a device decides where Prometheus goes", asked)
			}
		}
	}
	if lists != 1 {
		t.Errorf("it asks for %d lists of targets", lists)
	}
}

// grafanaTypes checks the dashboards in a folder against Grafana's TypeScript types with tsc.
func grafanaTypes(t *testing.T, dir string) (string, error) {
	t.Helper()
	tools, err := filepath.Abs("../../tools/grafana")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(tools, "node_modules", "@grafana", "schema")); err != nil {
		t.Skip("Grafana's types are not here: run tools/grafana/deps.sh, which needs npm")
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("node", filepath.Join(tools, "dashboards.mjs"), dir).CombinedOutput()
	return string(out), err
}

// TestGrafanaTypes checks the dashboards that we ship against Grafana's types. It also checks that a misspelt property
// and an invalid enumeration value are detected.
func TestGrafanaTypes(t *testing.T) {
	if testing.Short() {
		t.Skip("the TypeScript compiler is a process")
	}
	if out, err := grafanaTypes(t, folder+"/grafana/dashboards"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	text, err := monitoring.Files.ReadFile("grafana/dashboards/d2d.json")
	if err != nil {
		t.Fatal(err)
	}
	dir, bad := t.TempDir(), map[string]string{`"gridPos"`: `"gridpos"`,
		`"displayMode": "list"`: `"displayMode": "lists"`, `"drawStyle": "line"`: `"drawStyle": "lines"`}
	for good, bad := range bad {
		broken := strings.Replace(string(text), good, bad, 1)
		if broken == string(text) || !json.Valid([]byte(broken)) {
			t.Fatalf("%s is not in the dashboard", good)
		}
		if err := os.WriteFile(filepath.Join(dir, strings.Trim(good[:8], `"`)+".json"), []byte(broken),
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := grafanaTypes(t, dir)
	for good := range bad {
		if file := strings.Trim(good[:8], `"`) + ".ts("; err == nil || !strings.Contains(out, file) {
			t.Errorf("nothing is said of %s: %s", file, out)
		}
	}
}
