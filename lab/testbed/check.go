package testbed

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/lab/monitoring"
	shipped "github.com/fedmesh/fedmesh/packaging/monitoring"
)

// rateInterval returns the value of Grafana's $__rate_interval: six scrape intervals of an agent.
func (b *bed) rateInterval() time.Duration { return time.Duration(30*b.stretch()) * time.Second }

// watch holds the Prometheus server, the dashboards and the rules that check inspects.
type watch struct {
	*bed
	server     monitoring.Prometheus
	dashboards []monitoring.Dashboard
	rules      []monitoring.Rule
}

// newWatch reads the shipped dashboards and rules.
func (b *bed) newWatch() (*watch, error) {
	w := &watch{bed: b, server: monitoring.Prometheus{URL: "http://" + b.prometheus}}
	var err1, err2 error
	w.dashboards, err1 = monitoring.Dashboards(shipped.Files)
	w.rules, err2 = monitoring.Rules(shipped.Files)
	return w, firstOf(err1, err2)
}

// check returns nil once every target is up, rounds advance, and every query of a dashboard or rule has data. On
// timeout it returns an error that lists the problems.
func (b *bed) check(ctx context.Context) error {
	w, err := b.newWatch()
	if err != nil {
		return err
	}
	late := time.After(b.Limit)
	first := w.version(ctx)
	for {
		summary, wrong := w.look(ctx, first)
		if len(wrong) == 0 {
			_, err := fmt.Fprintln(b.Stdout, summary)
			return err
		}
		select {
		case <-b.running.Context().Done():
			if ctx.Err() == nil {
				return context.Cause(b.running.Context())
			}
			return fmt.Errorf("stopped before all checks passed: %s", strings.Join(wrong, "\n  "))
		case <-late:
			return fmt.Errorf("checks failed after %s:\n  %s", b.Limit, strings.Join(wrong, "\n  "))
		case <-time.After(2 * time.Second):
		}
	}
}

// look runs all checks once. look returns a summary and the problems found.
func (w *watch) look(ctx context.Context, first float64) (summary string, wrong []string) {
	up, wrong := w.targets(ctx)
	const enough = 3 // number of new model versions that are required
	now := w.version(ctx)
	if !(now >= first+enough) { // this form of the comparison is also true if now is NaN
		wrong = append(wrong, fmt.Sprintf("the model version changed only from %v to %v: rounds do not advance", first,
			now))
	}
	if len(wrong) > 0 {
		return "", wrong // without new rounds, the other checks would fail too
	}
	asked := 0
	add := func(n int, more []string) { asked, wrong = asked+n, append(wrong, more...) }
	for i := range w.dashboards {
		for _, c := range w.choices(&w.dashboards[i]) {
			add(w.server.CheckDashboard(ctx, &w.dashboards[i], c))
		}
	}
	add(w.server.CheckRules(ctx, w.rules))
	return fmt.Sprintf("all checks passed: %d targets are up, the model has version %v, %d queries of %d dashboards "+
		"and %d rules return data, no alert is firing",
		up, now, asked, len(w.dashboards), len(w.rules)), wrong
}

// choices returns the values of the dashboard variables with which the queries are checked: the coordinator, or two
// agents. Prometheus scrapes the first agent directly. The metrics of the second agent arrive in reports of the
// coordinator, which lack some metrics of predictions.
func (w *watch) choices(d *monitoring.Dashboard) []monitoring.VariableValues {
	itself := monitoring.VariableValues{Job: "agents", Instance: agentID(0), Rate: w.rateInterval()}
	switch d.UID {
	case "fedmesh-predictions":
		itself.MissingMetrics = "coordinator_rollout"
		return []monitoring.VariableValues{itself}
	case "fedmesh-values":
		// the rows of the task come from files, so the agents have no inputs
		itself.MissingMetrics = "agentd_input_value"
		return []monitoring.VariableValues{itself}
	case "fedmesh-device":
		return []monitoring.VariableValues{itself, {Job: "agents", Instance: agentID(1), Rate: w.rateInterval()}}
	}
	return []monitoring.VariableValues{{Job: "coordinator", Instance: w.coordinator, Rate: w.rateInterval(),
		MissingMetrics: "coordinator_lease"}} // a single coordinator has no lease
}

// version returns the version of the current model, or 0 if Prometheus does not know it.
func (w *watch) version(ctx context.Context) float64 {
	all, err := w.server.Query(ctx, "coordinator_model_version")
	if err != nil || len(all) == 0 {
		return 0
	}
	return all[0].Value
}

// targets returns the number of scrape targets that are up, and problems for missing coordinators or agents.
func (w *watch) targets(ctx context.Context) (up int, wrong []string) {
	var data struct {
		ActiveTargets []struct{ ScrapeURL, Health, LastError string }
	}
	if err := w.server.Get(ctx, "/api/v1/targets?state=active", &data); err != nil {
		return 0, []string{err.Error()}
	}
	for _, t := range data.ActiveTargets {
		if t.Health == "up" {
			up++
		} else {
			wrong = append(wrong, fmt.Sprintf("%s is %s: %s", t.ScrapeURL, t.Health, t.LastError))
		}
	}
	if len(data.ActiveTargets) != w.Agents+1 {
		wrong = append(wrong, fmt.Sprintf("found %d targets, want %d agents and the coordinator",
			len(data.ActiveTargets),
			w.Agents))
	}
	return up, wrong
}
