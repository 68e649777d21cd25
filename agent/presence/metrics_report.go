package presence

import (
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// MetricsReportConfig configures the reports of an agent's metrics to the coordinator.
type MetricsReportConfig struct {
	ReportInterval time.Duration // whole seconds; 0 = no reports
	MetricsAddress string        // host:port where others can read the metrics; may be empty
	// ReadMetrics returns the present readings. It is called on the owner's goroutine and must not block.
	ReadMetrics func() []wire.ReportMetric
}

// reportSpread is the time over which the first reports are spread, since all agents connect at once after a power cut.
const reportSpread = time.Minute

// planMetricsReport plans the next report, when the link comes up and when the first announcement arrives. A report
// that is already planned keeps its time, so that an unstable link does not cause more reports.
func (p *AgentPresence) planMetricsReport() {
	now := p.core.Loop.Now()
	if every := p.cfg.MetricsReports.ReportInterval; every > 0 && !p.nextReportAt.After(now) {
		p.nextReportAt = now.Add(time.Duration(p.core.Rand.Float64() * float64(min(every, reportSpread))))
	}
}

// Deadline implements part.TickHook. No report is sent before the first announcement, which has the key for sealing it.
func (p *AgentPresence) Deadline() (time.Time, bool) {
	return p.nextReportAt,
		p.core.IsConnected && p.cfg.MetricsReports.ReportInterval > 0 && !p.core.IsUplinkBudgetSpent() &&
			p.hasAnnouncement
}

// Tick implements part.TickHook: it sends a report that is due. A report that is lost is not repeated, since the next
// one has newer readings.
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

// NeedsLink implements part.LinkNeedReporter: the agent stays connected for a report that is due soon, and before the
// agent would be back.
func (p *AgentPresence) NeedsLink() bool {
	at, planned := p.Deadline()
	return planned && at.Before(p.core.Loop.Now().Add(min(p.plannedAbsence, reportSpread)))
}
