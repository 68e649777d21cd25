package wire

// MaxReportMetrics bounds the readings of a report.
const MaxReportMetrics = 255

// AgentMetricsReport is what an agent measures of itself, for those who watch the fleet.
// It is sent now and then; nothing waits for it or rests on it.
type AgentMetricsReport struct {
	IntervalSeconds uint32 // seconds until the next one
	SoftwareVersion string // for people
	// ScrapeAddress is where the agent serves its metrics itself, as host:port; empty
	// where nobody else reaches it.
	ScrapeAddress string
	Metrics       []ReportMetric // ascending by ID
}

// ReportMetric is one number of a report. The meaning of an ID stands in
// docs/PROTOCOL.md; a receiver passes over those it does not know.
type ReportMetric struct {
	ID    uint8
	Value float64
}

// reportMetricSize is the length of an encoded reading, in bytes.
const reportMetricSize = 9

// Body returns the message's encoding.
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

// DecodeAgentMetricsReport reads the body of a TypeMetricsReport envelope.
func DecodeAgentMetricsReport(body []byte) (AgentMetricsReport, error) {
	r := reader{unread: body}
	m := AgentMetricsReport{IntervalSeconds: r.u32(), SoftwareVersion: r.str("software", MaxName),
		ScrapeAddress: r.str("scrape",
			MaxName)}
	for i := range r.listLength("readings", MaxReportMetrics, reportMetricSize) {
		x := ReportMetric{r.u8(), r.f64("reading")}
		if i > 0 && r.err == nil && x.ID <= m.Metrics[i-1].ID {
			r.failf("reading %d comes after reading %d", x.ID, m.Metrics[i-1].ID)
		}
		m.Metrics = append(m.Metrics, x)
	}
	return m, r.finish("report")
}
