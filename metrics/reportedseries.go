package metrics

import (
	"math"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fedmesh/fedmesh/wire"
)

// ReportedSeries defines the meaning of an ID in a wire.AgentMetricsReport: the sum of all series of Metric that have
// the given labels. A series is counted only for the first matching entry of the table.
type ReportedSeries struct {
	ID        uint8
	Metric    string
	Labels    string // labels in Prometheus text format; empty means all series
	IsCounter bool
}

// ReportedSeriesTable lists all reported series, as in docs/PROTOCOL.md. IDs must never be reused.
var ReportedSeriesTable = []ReportedSeries{
	{1, "process_start_time_seconds", "", false},
	{2, "process_resident_memory_bytes", "", false},
	{3, "process_cpu_seconds_total", "", true},
	{4, "agentd_round", "", false},
	{5, "agentd_model_version", "", false},
	{6, "agentd_samples", "", false},
	{7, "agentd_step_seconds", "", false},
	{8, "agentd_local_steps", "", false},
	{9, "agentd_local_risk_before", "", false},
	{10, "agentd_local_risk_after", "", false},
	{11, "agentd_last_round_timestamp_seconds", "", false},
	{12, "agentd_task_fitness", `fitness="fit"`, false},
	{13, "agentd_rounds_total", `result="accepted"`, true},
	{14, "agentd_rounds_total", `result="mixed"`, true},
	{15, "agentd_rounds_total", `result="refused"`, true},
	{16, "agentd_rounds_total", `result="declined"`, true},
	{17, "agentd_rounds_total", `result="superseded"`, true},
	{18, "agentd_local_steps_decisions_total", `reason="budget"`, true},
	{19, "agentd_local_steps_decisions_total", `reason="minimum"`, true},
	{20, "agentd_local_steps_decisions_total", `reason="maximum"`, true},
	{21, "agentd_local_steps_decisions_total", `reason="unmeasured"`, true},
	{22, "agentd_local_steps_decisions_total", `reason="eased"`, true},
	{23, "agentd_training_failures_total", "", true},
	{24, "agentd_broker_reconnects_total", "", true},
	{25, "agentd_mqtt_payload_bytes_total", `direction="received",kind="peer"`, true},
	{26, "agentd_mqtt_payload_bytes_total", `direction="sent",kind="peer"`, true},
	{27, "agentd_mqtt_payload_bytes_total", `direction="received"`, true},
	{28, "agentd_mqtt_payload_bytes_total", `direction="sent"`, true},
	{29, "agentd_mqtt_dropped_messages_total", "", true},
	{30, "agentd_budget_bytes", "", false},
	{31, "agentd_budget_used_bytes", "", false},
	{32, "agentd_mixing_flows_total", "", true},
	{33, "agentd_mixing_flows_late_total", "", true},
	{34, "agentd_mixing_skipped_total", "", true},
	{35, "agentd_mixing_waits_total", "", true},
	{36, "agentd_mixing_unreconciled_total", "", true},
	{37, "agentd_config_last_reload_successful", "", false},
	{38, "agentd_device_share", "", false},
	{39, "agentd_device_load_ratio", "", false},
	{40, "agentd_device_temperature_celsius", "", false},
	{41, "agentd_device_battery_ratio", "", false},
	{42, "agentd_device_memory_available_bytes", "", false},
	{43, "agentd_device_decisions_total", `decision="ease"`, true},
	{44, "agentd_device_decisions_total", `decision="stop"`, true},
	{45, "agentd_model_in_use_version", "", false},
	{46, "agentd_model_in_use_timestamp_seconds", "", false},
	{47, "agentd_forecasts_ok", "", false},
	{48, "agentd_forecast_timestamp_seconds", "", false},
	{49, "agentd_residual_mean", "", false},
	{50, "agentd_anomalies_total", "", true},
	{51, "agentd_data_unusable_ratio", "", false},
	{52, "agentd_data_troubles", "", false},
	{53, "agentd_data_doubts", "", false},
}

// ReportedSeriesByID returns the series with the given ID. It returns false if this version does not know the ID.
func ReportedSeriesByID(id uint8) (ReportedSeries, bool) {
	if id == 0 || int(id) > len(ReportedSeriesTable) {
		return ReportedSeries{}, false
	}
	return ReportedSeriesTable[id-1], true
}

// MetricNameByID returns the name of the agent metric with the given ID, or "" if this version does not know the ID.
func MetricNameByID(id uint8) string {
	r, _ := ReportedSeriesByID(id)
	return r.Metric
}

// ReportedSeriesID returns the ID of a series. It panics if the series is not in the table, which is a programming
// error.
func ReportedSeriesID(metric, labels string) uint8 {
	for _, r := range ReportedSeriesTable {
		if r.Metric == metric && r.Labels == labels {
			return r.ID
		}
	}
	panic("metrics: unknown series " + metric + "{" + labels + "}")
}

// GatherReportMetrics reads the metrics of a process and returns those that agents report. It omits values that are
// unknown or not finite.
func GatherReportMetrics(g prometheus.Gatherer) []wire.ReportMetric {
	families, _ := g.Gather() // if gathering fails for some metrics, the others are still reported
	sums := map[uint8]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			i := slices.IndexFunc(ReportedSeriesTable,
				func(r ReportedSeries) bool { return r.Metric == f.GetName() && labelsMatch(r.Labels, m.GetLabel()) })
			if i >= 0 {
				sums[ReportedSeriesTable[i].ID] += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	var all []wire.ReportMetric
	for _, r := range ReportedSeriesTable {
		if x, ok := sums[r.ID]; ok && !math.IsNaN(x) && !math.IsInf(x, 0) {
			all = append(all, wire.ReportMetric{ID: r.ID, Value: x})
		}
	}
	return all
}

// labelsMatch reports whether a series has all the given labels.
func labelsMatch[L interface {
	GetName() string
	GetValue() string
}](labels string, series []L) bool {
	for _, l := range series {
		labels = strings.Replace(labels, l.GetName()+`="`+l.GetValue()+`"`, "", 1)
	}
	return strings.Trim(labels, ",") == ""
}

// MetricType returns the type of the metric as named in the Prometheus text format.
func (r ReportedSeries) MetricType() string {
	if r.IsCounter {
		return "counter"
	}
	return "gauge"
}
