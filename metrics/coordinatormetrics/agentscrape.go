package coordinatormetrics

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/wire"
)

// Handler extends metrics.Handler by the agents' metrics:
//
//   - GET /sd/agents lists the agents for Prometheus (http_sd). An agent that advertises an
//     address is scraped there, the others at this server. With ?via=coordinator all
//     are scraped at this server.
//   - GET /agents/{id}/metrics returns the latest report of an agent. The status is 503 for
//     a stale report, so that Prometheus' up is 0, and 404 for an unknown agent.
func (c *CoordinatorMetrics) Handler(reg *prometheus.Registry, ready func() error) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", metrics.Handler(reg, ready))
	mux.HandleFunc("GET /sd/agents", c.reports.serveScrapeTargets)
	mux.HandleFunc("GET /agents/{id}/metrics", c.reports.serveAgentMetrics)
	return mux
}

// prometheusTargetGroup is one element of the list for Prometheus HTTP service discovery (http_sd).
type prometheusTargetGroup struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

func (s *fleetReports) serveScrapeTargets(w http.ResponseWriter, req *http.Request) {
	via := req.URL.Query().Get("via")
	if via != "" && via != "coordinator" {
		http.Error(w, "invalid parameter via: use via=coordinator or omit the parameter", http.StatusBadRequest)
		return
	}
	groups := []prometheusTargetGroup{} // encode an empty list as [], not null
	for _, id := range s.reportingAgents() {
		r, _, _ := s.reportOfAgent(id)
		g := prometheusTargetGroup{[]string{r.ScrapeAddress}, map[string]string{"instance": string(id)}}
		if via != "" || !isScrapeAddress(r.ScrapeAddress) {
			g.Targets[0] = req.Host
			g.Labels["__metrics_path__"] = "/agents/" + string(id) + "/metrics"
		}
		groups = append(groups, g)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(groups) // ignore the error, because the client may have disconnected
}

// isScrapeAddress reports whether an address has the form host:port. Agents may report any text, but Prometheus accepts
// only this form.
func isScrapeAddress(address string) bool {
	host, port, err := net.SplitHostPort(address)
	n, bad := strconv.Atoi(port)
	return err == nil && host != "" && !strings.ContainsAny(host, "/?#@ ") && bad == nil && n > 0 && n < 1<<16
}

// reportingAgents returns the agents that have sent a metrics report, sorted by ID.
func (s *fleetReports) reportingAgents() []wire.AgentID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.newestReportByAgent))
}

func (s *fleetReports) serveAgentMetrics(w http.ResponseWriter, req *http.Request) {
	id := wire.AgentID(req.PathValue("id"))
	r, fresh, known := s.reportOfAgent(id)
	switch age := s.now().Sub(r.receivedAt); {
	case !known:
		http.Error(w, "no report from this agent since the coordinator started", http.StatusNotFound)
	case !fresh:
		http.Error(w, fmt.Sprintf("latest report from this agent is %.0f s old, but one is expected every %d s",
			age.Seconds(), r.IntervalSeconds), http.StatusServiceUnavailable)
	default:
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write(r.expositionText(age.Seconds()))
	}
}

// expositionText returns the metrics in a report in the Prometheus text format, under the agent's metric names. It
// omits metrics that this version does not know.
func (r *agentReport) expositionText(age float64) []byte {
	b := []byte("# HELP agentd_report_age_seconds Age of the agent's last report.\n")
	b = fmt.Appendf(b, "# TYPE agentd_report_age_seconds gauge\nagentd_report_age_seconds %g\n", age)
	last := ""
	for _, x := range r.Metrics {
		m, ok := metrics.ReportedSeriesByID(x.ID)
		if !ok {
			continue
		}
		if m.Metric != last {
			b = fmt.Appendf(b, "# TYPE %s %s\n", m.Metric, m.MetricType())
			last = m.Metric
		}
		labels := ""
		if m.Labels != "" {
			labels = "{" + m.Labels + "}"
		}
		b = fmt.Appendf(b, "%s%s %s\n", m.Metric, labels, strconv.FormatFloat(x.Value, 'g', -1, 64))
	}
	return b
}
