package presence

import (
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// MetricsReportConfig configures the reports of an agent's metrics to the coordinator.
type MetricsReportConfig struct {
	ReportInterval time.Duration // reporting interval in whole seconds; 0 disables reports
	MetricsAddress string        // host:port of the metrics endpoint; may be empty
	// ReadMetrics returns the current metrics. It is called on the event loop and must not block.
	ReadMetrics func() []wire.ReportMetric
}

// reportSpread is the time over which the first reports are spread, because all agents connect at once after a power
// cut.
const reportSpread = time.Minute

// planMetricsReport schedules the first report after connecting or after the first announcement. It keeps a scheduled
// report, so that reconnections do not cause additional reports.
func (p *AgentPresence) planMetricsReport() {
	now := p.core.Loop.Now()
	if every := p.cfg.MetricsReports.ReportInterval; every > 0 && !p.nextReportAt.After(now) {
		p.nextReportAt = now.Add(time.Duration(p.core.Rand.Float64() * float64(min(every, reportSpread))))
	}
}

// Deadline implements part.TickHook. No report is due before the first announcement, which contains the encryption key.
func (p *AgentPresence) Deadline() (time.Time, bool) {
	return p.nextReportAt,
		p.core.IsConnected && p.cfg.MetricsReports.ReportInterval > 0 && !p.core.IsUplinkBudgetSpent() &&
			p.hasAnnouncement
}

// Tick implements part.TickHook. It sends a report that is due and does not repeat lost reports, because the next
// report has newer values.
func (p *AgentPresence) Tick(now time.Time) {
	at, planned := p.Deadline()
	if !planned || now.Before(at) {
		return
	}
	r := &p.cfg.MetricsReports
	p.nextReportAt = now.Add(r.ReportInterval)
	interval := max(r.ReportInterval, p.responsePolicy().MaxDisconnectTime())
	m := wire.AgentMetricsReport{IntervalSeconds: uint32(interval / time.Second), SoftwareVersion: p.cfg.Software,
		ScrapeAddress: r.MetricsAddress, Metrics: r.ReadMetrics()}
	p.PublishAwaitingAnswer(p.core.Sealer.MessageToCoordinator(wire.TypeMetricsReport, 0, 0, m.Body()))
}

// NeedsLink implements part.LinkNeedReporter. It returns true if a report is due within reportSpread and before the
// planned reconnection.
func (p *AgentPresence) NeedsLink() bool {
	at, planned := p.Deadline()
	return planned && at.Before(p.core.Loop.Now().Add(min(p.plannedAbsence, reportSpread)))
}
