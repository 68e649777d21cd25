package metrics_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/metrics/agentmetrics"
	"github.com/fedmesh/fedmesh/metrics/coordinatormetrics"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// watched contains a coordinator's metrics and a clock that the test sets.
type watched struct {
	*coordinatormetrics.CoordinatorMetrics
	t   *testing.T
	reg *prometheus.Registry
	now time.Time
}

func newWatched(t *testing.T) *watched {
	w := &watched{t: t, reg: prometheus.NewRegistry(), now: clock()}
	w.CoordinatorMetrics = coordinatormetrics.New(w.reg, func() time.Time { return w.now })
	return w
}

func (w *watched) get(path string) *httptest.ResponseRecorder {
	got := httptest.NewRecorder()
	req := httptest.NewRequest("GET", path, nil)
	req.Host = "coordinator.example:9464"
	w.Handler(w.reg, func() error { return nil }).ServeHTTP(got, req)
	return got
}

// fleet returns the fleet series with a value other than 0.
func (w *watched) fleet() map[string]string {
	all := map[string]string{}
	for name, value := range seriesOf(w.t, w.reg) {
		if rest, ok := strings.CutPrefix(name, "coordinator_fleet_"); ok && value != "0" {
			all[rest] = value
		}
	}
	return all
}

func readingsOf(pairs ...float64) (all []wire.ReportMetric) {
	for p := range slices.Chunk(pairs, 2) {
		all = append(all, wire.ReportMetric{ID: uint8(p[0]), Value: p[1]})
	}
	return all
}

func (w *watched) report(agent wire.AgentID, boot wire.Epoch, pairs ...float64) {
	w.Observe(coordinator.AgentReportReceived{Agent: agent, BootEpoch: boot,
		Report: wire.AgentMetricsReport{IntervalSeconds: 60, SoftwareVersion: "agentd 1",
			Metrics: readingsOf(pairs...)}})
}

// TestFolding checks that the coordinator adds up the counters that agents report, across restarts of agents, and
// exports the distribution of their gauges.
func TestFolding(t *testing.T) {
	w := newWatched(t)
	// The rounds of this first report were accepted earlier, so they are not counted.
	w.report("a", 1, 7, 0.5, 12, 1, 13, 10)
	w.report("b", 4, 7, 0.25, 12, 1, 13, 3)
	w.report("c", 1, 12, 0)
	w.report("a", 1, 7, 2, 12, 1, 13, 12)
	w.report("b", 5, 7, 0.25, 12, 1, 13, 1) // the agent was restarted, so its counters begin with 0 again
	w.report("b", 5, 7, 0.25, 12, 1, 13, 0, 200, 1e9)
	want := map[string]string{
		"agents_known": "3", "agents_reporting": "3", "agents_fit": "2", "versions": "1",
		`rounds_total{result="accepted"}`: "3",
		`step_seconds{stat="min"}`:        "0.25", `step_seconds{stat="median"}`: "2", `step_seconds{stat="p95"}`: "2",
		`step_seconds{stat="max"}`: "2",
	}
	if got := w.fleet(); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	w.now = w.now.Add(3*time.Minute + time.Second)
	// When all reports are stale, the counters remain, but the gauges disappear.
	want = map[string]string{"agents_known": "3", `rounds_total{result="accepted"}`: "3"}
	if got := w.fleet(); !reflect.DeepEqual(got, want) {
		t.Errorf("when all are stale: got %v, want %v", got, want)
	}
}

// TestForgotten checks that an agent removed from the list is not counted as silent.
func TestForgotten(t *testing.T) {
	w := newWatched(t)
	w.report("a", 1, 12, 1, 13, 10)
	w.report("b", 1, 12, 7, 13, 10) // the report contains an unknown value of the metric fitness
	w.report("a", 1, 12, 1, 13, 12)
	if got := w.fleet()["agents_fit"]; got != "1" {
		t.Errorf("%s agents are fit", got)
	}
	w.Observe(coordinator.AgentListChanged{ListedAgents: 2, RemovedAgents: []wire.AgentID{"b"}})
	want := map[string]string{"agents_known": "1", "agents_reporting": "1", "agents_fit": "1", "versions": "1",
		`rounds_total{result="accepted"}`: "2"}
	if got := w.fleet(); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if got := w.get("/agents/b/metrics"); got.Code != 404 {
		t.Errorf("status %d", got.Code)
	}
}

// TestSilentAgentIs503 checks that a scrape of a silent agent returns status 503 until the agent reports again.
// Prometheus then sets up == 0 for this agent.
func TestSilentAgentIs503(t *testing.T) {
	w := newWatched(t)
	const path = "/agents/press-01/metrics"
	if got := w.get(path); got.Code != 404 {
		t.Errorf("before its first report: status %d", got.Code)
	}
	w.report("press-01", 1, 7, 0.5, 13, 10, 15, 1, 200, 3)
	w.now = w.now.Add(3 * time.Minute)
	got := w.get(path)
	const want = `# HELP agentd_report_age_seconds Age of the agent's last report.
# TYPE agentd_report_age_seconds gauge
agentd_report_age_seconds 180
# TYPE agentd_step_seconds gauge
agentd_step_seconds 0.5
# TYPE agentd_rounds_total counter
agentd_rounds_total{result="accepted"} 10
agentd_rounds_total{result="refused"} 1
`
	if got.Code != 200 || got.Body.String() != want {
		t.Errorf("status %d\n%s\nwant\n%s", got.Code, got.Body, want)
	}
	w.now = w.now.Add(time.Second)
	if got := w.get(path); got.Code != 503 || !strings.Contains(got.Body.String(), "181 s old") {
		t.Errorf("when it is stale: status %d, %s", got.Code, got.Body)
	}
	w.report("press-01", 1)
	if got := w.get(path); got.Code != 200 {
		t.Errorf("when it is back: status %d", got.Code)
	}
}

// TestTargets checks that the list for Prometheus has the form of http_sd.
func TestTargets(t *testing.T) {
	w := newWatched(t)
	if got := w.get("/sd/agents"); got.Body.String() != "[]\n" ||
		got.Header().Get("Content-Type") != "application/json" {
		t.Errorf("without agents: %q of type %q", got.Body, got.Header().Get("Content-Type"))
	}
	for agent, scrape := range map[wire.AgentID]string{"b": "192.0.2.7:9465", "a": "", "c": "[2001:db8::1]:9465",
		"d": "evil/path?:80", "e": "host:0"} {
		w.Observe(coordinator.AgentReportReceived{Agent: agent, BootEpoch: 1,
			Report: wire.AgentMetricsReport{IntervalSeconds: 60,
				ScrapeAddress: scrape}})
	}
	type targetGroup struct {
		Targets []string
		Labels  map[string]string
	}
	var got []targetGroup
	if err := json.Unmarshal(w.get("/sd/agents").Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	here := func(id string) targetGroup {
		return targetGroup{[]string{"coordinator.example:9464"},
			map[string]string{"instance": id, "__metrics_path__": "/agents/" + id + "/metrics"}}
	}
	direct := func(id, at string) targetGroup {
		return targetGroup{[]string{at}, map[string]string{"instance": id}}
	}
	want := []targetGroup{here("a"), direct("b", "192.0.2.7:9465"), direct("c", "[2001:db8::1]:9465"), here("d"),
		here("e")}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	got = nil
	if err := json.Unmarshal(w.get("/sd/agents?via=coordinator").Body.Bytes(), &got); err != nil ||
		!reflect.DeepEqual(got[1], here("b")) {
		t.Errorf("via the coordinator: %v, error %v", got, err)
	}
	if got := w.get("/sd/agents?via=pigeon"); got.Code != 400 {
		t.Errorf("via=pigeon: status %d", got.Code)
	}
}

// TestReadings checks that every reported series belongs to an existing metric of the agent, and that Prometheus can
// parse the text with all reported series.
func TestReadings(t *testing.T) {
	reg := metrics.NewRegistry("agentd")
	a := agentmetrics.New(reg, clock, "")
	for _, event := range agentScript {
		apply(a.Events, event)
	}
	all := metrics.GatherReportMetrics(reg)
	for i, r := range metrics.ReportedSeriesTable {
		if int(r.ID) != i+1 {
			t.Errorf("reading %d has the ID %d", i+1, r.ID)
		}
		if !slices.ContainsFunc(all, func(x wire.ReportMetric) bool { return x.ID == r.ID }) {
			t.Errorf("no reading of %s{%s}: is there such a series?", r.Metric, r.Labels)
		}
	}
	for i, result := range agentround.WorkResults() {
		if got := metrics.ReportedSeriesTable[12+i].Labels; got != `result="`+string(result)+`"` {
			t.Errorf("reading %d is of the result %s, want %s", 13+i, got, result)
		}
	}
	w := newWatched(t)
	w.Observe(coordinator.AgentReportReceived{Agent: "a", BootEpoch: 1,
		Report: wire.AgentMetricsReport{IntervalSeconds: 60,
			Metrics: all}})
	text := w.get("/agents/a/metrics").Body.String()
	if _, err := promlint.New(strings.NewReader(text)).Lint(); err != nil {
		t.Errorf("the exposition does not parse: %v\n%s", err, text)
	}
	if got := strings.Count(text, "agentd_rounds_total{"); got != len(agentround.WorkResults()) {
		t.Errorf("%d series of agentd_rounds_total", got)
	}
}

// TestReadingsAreDocumented compares the table of reported series in docs/PROTOCOL.md with the code.
func TestReadingsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| (\\d+) \\| `([^`]+)` \\|$").FindAllStringSubmatch(string(text), -1)
	var got, want []string
	for _, row := range rows {
		got = append(got, row[1]+" "+row[2])
	}
	for _, r := range metrics.ReportedSeriesTable {
		name := r.Metric
		if r.Labels != "" {
			name += "{" + r.Labels + "}"
		}
		want = append(want, fmt.Sprint(r.ID, " ", name))
	}
	if !slices.Equal(got, want) {
		t.Errorf("the table of readings in docs/PROTOCOL.md has\n%s\nwant\n%s", strings.Join(got, "\n"),
			strings.Join(want, "\n"))
	}
}
