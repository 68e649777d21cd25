package presence

import (
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// MetricsReportConfig configures the reports of an agent's metrics to the coordinator.
type MetricsReportConfig struct {
	ReportInterval time.Duration // interval in whole seconds; 0 = no reports
	MetricsAddress string        // host:port at which the metrics can be read; may be empty
	// ReadMetrics returns the current metrics. It is called on the event loop and must not block.
	ReadMetrics func() []wire.ReportMetric
}

// reportSpread is the time over which the first reports are spread, because all agents connect at once after a power
// cut.
const reportSpread = time.Minute

// planMetricsReport schedules the next report after connecting and after the first announcement. It does not move a
// scheduled report, so that an unstable connection does not cause more reports.
func (p *AgentPresence) planMetricsReport() {
	now := p.core.Loop.Now()
	if every := p.cfg.MetricsReports.ReportInterval; every > 0 && !p.nextReportAt.After(now) {
		p.nextReportAt = now.Add(time.Duration(p.core.Rand.Float64() * float64(min(every, reportSpread))))
	}
}

// Deadline implements part.TickHook. Reports wait for the first announcement, which contains the key for sealing them.
func (p *AgentPresence) Deadline() (time.Time, bool) {
	return p.nextReportAt,
		p.core.IsConnected && p.cfg.MetricsReports.ReportInterval > 0 && !p.core.IsUplinkBudgetSpent() &&
			p.hasAnnouncement
}

// Tick implements part.TickHook. It sends a due report. Lost reports are not repeated, since the next one has newer
// values.
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

// NeedsLink implements part.LinkNeedReporter. The agent stays connected if a report is due soon, and before it would be
// connected again.
func (p *AgentPresence) NeedsLink() bool {
	at, planned := p.Deadline()
	return planned && at.Before(p.core.Loop.Now().Add(min(p.plannedAbsence, reportSpread)))
}
