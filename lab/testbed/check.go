package testbed

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/lab/monitoring"
	shipped "github.com/fedmesh/fedmesh/packaging/monitoring"
)

// rateInterval stands for what Grafana makes of $__rate_interval: six scrapes of an agent.
func (b *bed) rateInterval() time.Duration { return time.Duration(30*b.stretch()) * time.Second }

// watch is what the check looks at.
type watch struct {
	*bed
	server     monitoring.Prometheus
	dashboards []monitoring.Dashboard
	rules      []monitoring.Rule
}

// newWatch reads what we ship.
func (b *bed) newWatch() (*watch, error) {
	w := &watch{bed: b, server: monitoring.Prometheus{URL: "http://" + b.prometheus}}
	var err1, err2 error
	w.dashboards, err1 = monitoring.Dashboards(shipped.Files)
	w.rules, err2 = monitoring.Rules(shipped.Files)
	return w, firstOf(err1, err2)
}

// check returns nil when every target is up, rounds advance, and every query of a
// dashboard or rule has data; else, when the time is over, what is wrong.
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
		case <-ctx.Done():
			return fmt.Errorf("stopped before all was well: %s", strings.Join(wrong, "\n  "))
		case name := <-b.ended:
			return b.gone(name)
		case <-late:
			return fmt.Errorf("after %s not all is well:\n  %s", b.Limit, strings.Join(wrong, "\n  "))
		case <-time.After(2 * time.Second):
		}
	}
}

// look looks once.
func (w *watch) look(ctx context.Context, first float64) (summary string, wrong []string) {
	up, wrong := w.targets(ctx)
	const enough = 3 // aggregations while we look
	now := w.version(ctx)
	if !(now >= first+enough) { // NaN too
		wrong = append(wrong, fmt.Sprintf("the model's version went from %v to %v only: rounds do not advance", first,
			now))
	}
	if len(wrong) > 0 {
		return "", wrong // nothing else could be well
	}
	asked := 0
	add := func(n int, more []string) { asked, wrong = asked+n, append(wrong, more...) }
	for i := range w.dashboards {
		for _, c := range w.choices(&w.dashboards[i]) {
			add(w.server.CheckDashboard(ctx, &w.dashboards[i], c))
		}
	}
	add(w.server.CheckRules(ctx, w.rules))
	return fmt.Sprintf("all is well: %d targets are up, the model has version %v, %d queries of %d dashboards and %d "+
		"rules have data, no alert fires",
		up, now, asked, len(w.dashboards), len(w.rules)), wrong
}

// choices are what a dashboard is asked for: the coordinator; or an agent that
// Prometheus scrapes itself, and one that it scrapes through the coordinator, whose reports have not all that is asked
// for of predictions.
func (w *watch) choices(d *monitoring.Dashboard) []monitoring.VariableValues {
	itself := monitoring.VariableValues{Job: "agents", Instance: agentID(0), Rate: w.rateInterval()}
	switch d.UID {
	case "fedmesh-predictions":
		itself.MissingMetrics = "coordinator_rollout" // no model is rolled out: that takes half an hour
		return []monitoring.VariableValues{itself}
	case "fedmesh-device":
		return []monitoring.VariableValues{itself, {Job: "agents", Instance: agentID(1), Rate: w.rateInterval()}}
	}
	return []monitoring.VariableValues{{Job: "coordinator", Instance: w.coordinator, Rate: w.rateInterval(),
		MissingMetrics: "coordinator_lease"}} // there is one coordinator
}

// version is the model's; NaN if there is none yet.
func (w *watch) version(ctx context.Context) float64 {
	all, err := w.server.Query(ctx, "coordinator_model_version")
	if err != nil || len(all) == 0 {
		return 0
	}
	return all[0].Value
}

// targets counts those that are up. There must be the coordinator, and all agents.
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
		wrong = append(wrong, fmt.Sprintf("%d targets, want %d agents and the coordinator", len(data.ActiveTargets),
			w.Agents))
	}
	return up, wrong
}
