package wire

// MaxReportMetrics is the maximum number of metrics in a report.
const MaxReportMetrics = 255

// MaxReportInputs is the maximum number of inputs in a report.
const MaxReportInputs = 64

// AgentMetricsReport contains metrics that an agent measures about itself. The agent sends it periodically for
// monitoring only.
type AgentMetricsReport struct {
	IntervalSeconds uint32 // number of seconds until the agent sends the next report
	SoftwareVersion string // version of the agent program, for display
	// ScrapeAddress is the host:port at which the agent serves its metrics. It is empty if other machines cannot reach
	// it.
	ScrapeAddress string
	Metrics       []ReportMetric // metrics in ascending order of ID
	// UnhealthyInputs contains the inputs and columns of which some values could not be used, in ascending order of
	// names.
	UnhealthyInputs []UnhealthyInput
}

// UnhealthyInput contains the shares of an input's values that could not be used, in units of 1/65535. At least one
// share is positive.
type UnhealthyInput struct {
	Name                   string // name of the input or column
	Missing, Wrong, Frozen uint16
}

// ReportMetric is one metric of a report. The IDs are defined in docs/PROTOCOL.md; a receiver ignores unknown IDs.
type ReportMetric struct {
	ID    uint8
	Value float64
}

// reportMetricSize is the length in bytes of an encoded metric.
const reportMetricSize = 9

// unhealthyInputSize is the minimum length in bytes of an encoded UnhealthyInput.
const unhealthyInputSize = 2 + 3*2

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
	w.u32(uint32(len(m.UnhealthyInputs)))
	for _, in := range m.UnhealthyInputs {
		w.str(in.Name)
		w.u16(in.Missing)
		w.u16(in.Wrong)
		w.u16(in.Frozen)
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
	for i := range r.listLength("inputs", MaxReportInputs, unhealthyInputSize) {
		x := UnhealthyInput{r.str("input", MaxName), r.u16(), r.u16(), r.u16()}
		switch {
		case r.err != nil:
		case i > 0 && x.Name <= m.UnhealthyInputs[i-1].Name:
			r.failf("input %q is listed after %q: inputs must be in ascending order", x.Name,
				m.UnhealthyInputs[i-1].Name)
		case x.Missing == 0 && x.Wrong == 0 && x.Frozen == 0:
			r.failf("input %q has no unused values, so the sender must omit the input", x.Name)
		}
		m.UnhealthyInputs = append(m.UnhealthyInputs, x)
	}
	return m, r.finish("metrics report")
}
