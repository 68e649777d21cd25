package monitoring

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Prometheus is a client of a running Prometheus.
type Prometheus struct{ URL string }

// Sample is one time series with its current value.
type Sample struct {
	Labels map[string]string
	Value  float64
}

// Query evaluates an expression at the current time. A scalar is returned as a sample without labels.
func (p Prometheus) Query(ctx context.Context, expr string) ([]Sample, error) {
	var data struct {
		ResultType string
		Result     json.RawMessage
	}
	if err := p.Get(ctx, "/api/v1/query?"+url.Values{"query": {expr}}.Encode(), &data); err != nil {
		return nil, err
	}
	if data.ResultType == "scalar" {
		var v [2]any
		err := json.Unmarshal(data.Result, &v)
		return []Sample{{Value: value(v)}}, err
	}
	var result []struct {
		Metric map[string]string
		Value  [2]any
	}
	err := json.Unmarshal(data.Result, &result)
	all := make([]Sample, len(result))
	for i, r := range result {
		all[i] = Sample{r.Metric, value(r.Value)}
	}
	return all, err
}

// value parses the number in Prometheus' pair [time, "number"].
func value(v [2]any) float64 {
	text, _ := v[1].(string)
	x, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return math.NaN()
	}
	return x
}

// Get requests a path of the Prometheus API and decodes the field "data" of the response into data.
func (p Prometheus) Get(ctx context.Context, path string, data any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return fmt.Errorf("%s: %s: %w", path, resp.Status, err)
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s", answer.Error)
	}
	return json.Unmarshal(answer.Data, data)
}

// VariableValues contains the values that replace the variables of a dashboard in its queries.
type VariableValues struct {
	Job, Instance string
	Rate          time.Duration // value of the variable $__rate_interval
	// MissingMetrics is a part of the name of metrics that have no data yet. CheckDashboard skips queries that contain
	// it, and "" skips none.
	MissingMetrics string
}

// fill replaces variables in an expression by their values, as Grafana does.
func (c VariableValues) fill(expr string) string {
	return strings.NewReplacer("$job", c.Job, "$instance", c.Instance,
		"$__rate_interval", c.Rate.String()).Replace(expr)
}

// CheckDashboard runs every query of a dashboard. It returns the number of queries, and the problems of queries that
// fail, are empty or return NaN.
func (p Prometheus) CheckDashboard(ctx context.Context, d *Dashboard, c VariableValues) (asked int, wrong []string) {
	for _, panel := range d.Panels {
		for _, t := range panel.Targets {
			if c.MissingMetrics != "" && strings.Contains(t.Expr, c.MissingMetrics) {
				continue
			}
			asked++
			if problem := p.hasData(ctx, c.fill(t.Expr)); problem != "" {
				wrong = append(wrong, fmt.Sprintf("%s, panel %d (%s), instance %s: %s", d.File, panel.ID, panel.Title,
					c.Instance, problem))
			}
		}
	}
	return asked, wrong
}

// CheckRules checks that every selector and every recording rule has data, and that no alert fires. CheckRules returns
// the number of queries and the problems.
func (p Prometheus) CheckRules(ctx context.Context, all []Rule) (asked int, wrong []string) {
	for _, r := range all {
		for _, s := range selectors(r.Expr) {
			asked++
			if problem := p.hasData(ctx, s.text()); problem != "" {
				wrong = append(wrong, fmt.Sprintf("rule %s: %s", r.Record+r.Alert, problem))
			}
		}
		if r.Record != "" {
			asked++
			if problem := p.hasData(ctx, r.Record); problem != "" {
				wrong = append(wrong, fmt.Sprintf("rule %s: %s", r.Record, problem))
			}
			continue
		}
		asked++
		firing, err := p.Query(ctx, r.Expr)
		if err != nil || len(firing) > 0 {
			wrong = append(wrong, fmt.Sprintf("alert %s: firing for %v, error %v", r.Alert, firing, err))
		}
	}
	return asked, wrong
}

// hasData evaluates an expression. It returns a description of the problem, or "" if the result contains data.
func (p Prometheus) hasData(ctx context.Context, expr string) string {
	all, err := p.Query(ctx, expr)
	switch {
	case err != nil:
		return fmt.Sprintf("%s: %v", expr, err)
	case len(all) == 0:
		return expr + " returns no data"
	}
	for _, s := range all {
		if math.IsNaN(s.Value) {
			return fmt.Sprintf("%s is NaN for %v", expr, s.Labels)
		}
	}
	return ""
}
