package wire

// MaxReportMetrics is the maximum number of metrics in a report.
const MaxReportMetrics = 255

// AgentMetricsReport contains metrics that an agent measures about itself. The agent sends it periodically for
// monitoring only.
type AgentMetricsReport struct {
	IntervalSeconds uint32 // number of seconds until the agent sends the next report
	SoftwareVersion string // version of the agent program, for display
	// ScrapeAddress is the host:port at which the agent serves its metrics. It is empty if other machines cannot reach
	// it.
	ScrapeAddress string
	Metrics       []ReportMetric // metrics in ascending order of ID
}

// ReportMetric is one metric of a report. The IDs are defined in docs/PROTOCOL.md; a receiver ignores unknown IDs.
type ReportMetric struct {
	ID    uint8
	Value float64
}

// reportMetricSize is the length in bytes of an encoded metric.
const reportMetricSize = 9

// Body returns the encoded message.
func (m *AgentMetricsReport) Body() []byte {
	var w writer
	w.u32(m.IntervalSeconds)
	w.str(m.SoftwareVersion)
	w.str(m.ScrapeAddress)
	w.u32(uint32(len(m.Metrics)))
	for _, r := range m.Metrics {
		w.u8(r.ID)
		w.f64(r.Value)
	}
	return w.encoded
}

// DecodeAgentMetricsReport decodes the body of a TypeMetricsReport envelope.
func DecodeAgentMetricsReport(body []byte) (AgentMetricsReport, error) {
	r := reader{unread: body}
	m := AgentMetricsReport{IntervalSeconds: r.u32(), SoftwareVersion: r.str("software", MaxName),
		ScrapeAddress: r.str("scrape address",
			MaxName)}
	for i := range r.listLength("metrics", MaxReportMetrics, reportMetricSize) {
		x := ReportMetric{r.u8(), r.f64("metric")}
		if i > 0 && r.err == nil && x.ID <= m.Metrics[i-1].ID {
			r.failf("metric %d is listed after metric %d: metrics must be in ascending order", x.ID, m.Metrics[i-1].ID)
		}
		m.Metrics = append(m.Metrics, x)
	}
	return m, r.finish("metrics report")
}
