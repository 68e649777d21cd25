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

// Handler serves what Handler does, and the agents' metrics too:
//
//   - GET /sd/agents lists them for Prometheus (http_sd): an agent that advertises an
//     address is scraped there, the others at this server. With ?via=coordinator all
//     are scraped at this server.
//   - GET /agents/{id}/metrics has the newest report of an agent: status 503 if it
//     is stale, so that Prometheus' up is 0, and 404 if there is none.
func (c *CoordinatorMetrics) Handler(reg *prometheus.Registry, ready func() error) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", metrics.Handler(reg, ready))
	mux.HandleFunc("GET /sd/agents", c.reports.serveScrapeTargets)
	mux.HandleFunc("GET /agents/{id}/metrics", c.reports.serveAgentMetrics)
	return mux
}

// prometheusTargetGroup is an element of http_sd's list.
type prometheusTargetGroup struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

func (s *fleetReports) serveScrapeTargets(w http.ResponseWriter, req *http.Request) {
	via := req.URL.Query().Get("via")
	if via != "" && via != "coordinator" {
		http.Error(w, "via may be coordinator, or be left out", http.StatusBadRequest)
		return
	}
	groups := []prometheusTargetGroup{} // an empty list is [], not null
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
	_ = json.NewEncoder(w).Encode(groups) // the client may be gone
}

// isScrapeAddress checks that an address that an agent advertises is host:port, so that nothing else gets into
// Prometheus' list.
func isScrapeAddress(address string) bool {
	host, port, err := net.SplitHostPort(address)
	n, bad := strconv.Atoi(port)
	return err == nil && host != "" && !strings.ContainsAny(host, "/?#@ ") && bad == nil && n > 0 && n < 1<<16
}

// reportingAgents returns those that have reported, in id order.
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
		http.Error(w, "this agent has not reported since the coordinator was started", http.StatusNotFound)
	case !fresh:
		http.Error(w, fmt.Sprintf("the newest report of this agent is %.0f s old; it should send one each %d s",
			age.Seconds(), r.IntervalSeconds), http.StatusServiceUnavailable)
	default:
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write(r.expositionText(age.Seconds()))
	}
}

// expositionText writes the readings under the names that they have at the agent.
// It leaves out readings that this build does not know.
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
