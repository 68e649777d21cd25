package coordinatormetrics

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// fleetReports stores the latest metrics report of each agent and aggregates the reports into metrics of all agents
// together. The aggregated gauges ignore stale reports. Such metrics cannot be derived from single events.
type fleetReports struct {
	now               func() time.Time
	counterBySeriesID map[uint8]prometheus.Counter // counters of all agents together, by ReportedSeries.ID
	descs             fleetMetricDescs

	mu                  sync.Mutex // protects the map of reports, because scrapes run concurrently
	newestReportByAgent map[wire.AgentID]agentReport
}

// agentReport is the latest metrics report of an agent.
type agentReport struct {
	wire.AgentMetricsReport
	boot       wire.Epoch
	receivedAt time.Time
}

// isFresh reports whether the report is at most three reporting intervals old.
func (r *agentReport) isFresh(now time.Time) bool {
	return now.Sub(r.receivedAt) <= 3*time.Duration(max(r.IntervalSeconds, 1))*time.Second
}

// metricValue returns the value of the metric with this ID in the report. It reports false if the report does not
// contain the metric.
func (r *agentReport) metricValue(id uint8) (float64, bool) {
	i, ok := slices.BinarySearchFunc(r.Metrics, id,
		func(x wire.ReportMetric, id uint8) int { return cmp.Compare(x.ID, id) })
	if !ok {
		return 0, false
	}
	return r.Metrics[i].Value, true
}

// fitAgentSeriesID is the ID of the reported series that shows whether an agent can perform the task.
var fitAgentSeriesID = metrics.ReportedSeriesID("agentd_task_fitness", `fitness="`+agentround.TaskFitnessOK+`"`)

// spreadSeries lists the reported series whose distribution over all agents (the fleet) is exported.
var spreadSeries = []struct {
	id         uint8
	name, help string
}{
	{metrics.ReportedSeriesID("process_resident_memory_bytes", ""), "fleet_resident_memory_bytes",
		"Resident memory of the agent processes"},
	{metrics.ReportedSeriesID("agentd_step_seconds", ""), "fleet_step_seconds",
		"Duration of a local step, as estimated by the agents"},
	{metrics.ReportedSeriesID("agentd_local_steps", ""), "fleet_local_steps",
		"Number of local steps E_k in each agent's last training round"},
	{metrics.ReportedSeriesID("agentd_local_risk_before", ""), "fleet_local_risk",
		"Risk (mean loss) of the base model on each agent's own data, in the agent's last training round"},
}

// spreadStatistics lists the exported quantiles of a distribution.
var spreadStatistics = []struct {
	name string
	at   float64
}{{"min", 0}, {"median", 0.5}, {"p95", 0.95}, {"max", 1}}

type fleetMetricDescs struct {
	reportingAgents, knownAgents, versions, fitAgents *prometheus.Desc
	spreadDescs                                       []*prometheus.Desc
}

func newReports(r metrics.Registrar, now func() time.Time) *fleetReports {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(r.Namespace, "", name), help, labels, nil)
	}
	s := &fleetReports{
		now: now, newestReportByAgent: map[wire.AgentID]agentReport{},
		counterBySeriesID: map[uint8]prometheus.Counter{},
		descs: fleetMetricDescs{
			reportingAgents: desc("fleet_agents_reporting",
				"Agents whose last report is at most three intervals old. The fleet gauges cover only these agents."),
			knownAgents: desc("fleet_agents_known",
				"Enrolled agents that have reported since the coordinator started."),
			versions:  desc("fleet_versions", "Number of different program versions among the reporting agents."),
			fitAgents: desc("fleet_agents_fit", "Reporting agents whose local data fit the announced task."),
		},
	}
	for _, x := range spreadSeries {
		s.descs.spreadDescs = append(s.descs.spreadDescs,
			desc(x.name, x.help+".", "stat"))
	}
	const since = ", summed over the agents' reports."
	s.addFleetCounter(r, "fleet_rounds_total", "Rounds completed by agents, by result"+since,
		"agentd_rounds_total",
		"result", observe.NamesAsStrings(agentround.WorkResults()), "")
	s.addFleetCounter(r, "fleet_local_steps_decisions_total",
		"Rounds trained, by the reason for the number of local steps"+since,
		"agentd_local_steps_decisions_total", "reason", observe.StringerNames(learner.StepCountReasons()), "")
	s.addFleetCounter(r, "fleet_d2d_payload_bytes_total",
		"Payload bytes of the messages between neighbours"+since,
		"agentd_mqtt_payload_bytes_total", "direction", []string{host.DirectionReceived, host.DirectionSent}, `,kind="peer"`)
	s.addFleetCounter(r, "fleet_mqtt_payload_bytes_total", "Payload bytes of the agents' other MQTT messages"+since,
		"agentd_mqtt_payload_bytes_total", "direction", []string{host.DirectionReceived, host.DirectionSent}, "")
	for _, what := range []struct{ name, help string }{
		{"training_failures", "Rounds in which training produced no update"},
		{"broker_reconnects", "Reconnections of agents to the broker"},
		{"mqtt_dropped_messages", "MQTT messages dropped by agents"},
		{"mixing_flows", "Parameter differences (flows) received from neighbours and applied"},
		{"mixing_flows_late", "Parameter differences (flows) from neighbours that arrived late and were applied in a " +
			"later local step"},
		{"mixing_skipped", "Parameter snapshots not sent to a neighbour because the previous exchange with this " +
			"neighbour was not complete"},
		{"mixing_waits", "Local steps at which the wait for neighbours timed out"},
		{"mixing_unreconciled", "Links to neighbours on which, after a round, possibly only one side has applied a " +
			"parameter difference (flow)"},
	} {
		s.counterBySeriesID[metrics.ReportedSeriesID("agentd_"+what.name+"_total",
			"")] = r.NewCounter("fleet_"+what.name+"_total",
			what.help+since)
	}
	r.Reg.MustRegister(s)
	return s
}

// addFleetCounter registers a counter that sums a metric over all agents, with one series per value of a label. The
// argument more contains further labels that select the agents' series.
func (s *fleetReports) addFleetCounter(r metrics.Registrar, name, help, metric, label string, values []string,
	more string) {
	vec := r.NewCounterVec(name, help, label)
	for _, v := range values {
		s.counterBySeriesID[metrics.ReportedSeriesID(metric, label+`="`+v+`"`+more)] = vec.WithLabelValues(v)
	}
}

// recordReport stores a report and adds its increases to the counters of all agents together. The counters of an agent
// begin with 0 when the agent starts. The first report of an agent to this process is used only as a baseline, because
// the agent's counters may have increased before this process started.
func (s *fleetReports) recordReport(f coordinator.AgentReportReceived) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, known := s.newestReportByAgent[f.Agent]
	s.newestReportByAgent[f.Agent] = agentReport{f.Report, f.BootEpoch, s.now()}
	for _, r := range f.Report.Metrics {
		counter, ok := s.counterBySeriesID[r.ID]
		if !ok || !known {
			continue
		}
		more := r.Value
		if f.BootEpoch == before.boot {
			was, _ := before.metricValue(r.ID)
			more -= was
		}
		counter.Add(max(0, more)) // an agent may report any value, but a counter must not decrease
	}
}

func (s *fleetReports) forgetAgents(gone []wire.AgentID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range gone {
		delete(s.newestReportByAgent, id)
	}
}

// Describe implements prometheus.Collector.
func (s *fleetReports) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range append([]*prometheus.Desc{s.descs.reportingAgents, s.descs.knownAgents, s.descs.versions,
		s.descs.fitAgents},
		s.descs.spreadDescs...) {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (s *fleetReports) Collect(metrics chan<- prometheus.Metric) {
	fresh := s.freshReports()
	gauge := func(d *prometheus.Desc, x float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, x, labels...)
	}
	versions, able := map[string]bool{}, 0.
	for _, r := range fresh {
		versions[r.SoftwareVersion] = true
		// Compare with 1, because an agent may report any value.
		if x, _ := r.metricValue(fitAgentSeriesID); x == 1 {
			able++
		}
	}
	gauge(s.descs.reportingAgents, float64(len(fresh)))
	gauge(s.descs.knownAgents, float64(len(s.reportingAgents())))
	gauge(s.descs.versions, float64(len(versions)))
	gauge(s.descs.fitAgents, able)
	for i, spread := range spreadSeries {
		var xs []float64
		for _, r := range fresh {
			if x, ok := r.metricValue(spread.id); ok {
				xs = append(xs, x)
			}
		}
		if len(xs) == 0 {
			continue
		}
		slices.Sort(xs)
		for _, at := range spreadStatistics {
			gauge(s.descs.spreadDescs[i], xs[int(at.at*float64(len(xs)-1)+0.5)], at.name)
		}
	}
}

func (s *fleetReports) freshReports() (all []agentReport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for _, r := range s.newestReportByAgent {
		if r.isFresh(now) {
			all = append(all, r)
		}
	}
	return all
}

func (s *fleetReports) reportOfAgent(id wire.AgentID) (r agentReport, fresh, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, known = s.newestReportByAgent[id]
	return r, r.isFresh(s.now()), known
}
