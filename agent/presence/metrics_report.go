package presence

import (
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// MetricsReportConfig configures the reports of an agent's metrics to the coordinator.
type MetricsReportConfig struct {
	Every          time.Duration // whole seconds; 0 = no reports
	MetricsAddress string        // host:port where others can read the metrics; may be empty
	// CurrentMetrics returns the present readings. It is called on the owner's goroutine and must not block.
	CurrentMetrics func() []wire.ReportMetric
}

// reportSpread is the time over which the first reports are spread, since all agents connect at once after a power cut.
const reportSpread = time.Minute

// planReport plans the next report, when the link comes up and when the first announcement arrives. A report that is
// already planned keeps its time, so that an unstable link does not cause more reports.
func (p *Part) planReport() {
	now := p.core.Loop.Now()
	if every := p.cfg.MetricsReports.Every; every > 0 && !p.reportAt.After(now) {
		p.reportAt = now.Add(time.Duration(p.core.Rand.Float64() * float64(min(every, reportSpread))))
	}
}

// Deadline implements part.TickHook. No report is sent before the first announcement, which has the key for sealing it.
func (p *Part) Deadline() (time.Time, bool) {
	return p.reportAt,
		p.core.Connected && p.cfg.MetricsReports.Every > 0 && !p.core.IsUplinkBudgetSpent() && p.hasAnnouncement
}

// Tick implements part.TickHook: it sends a report that is due. A report that is lost is not repeated, since the next
// one has newer readings.
func (p *Part) Tick(now time.Time) {
	at, planned := p.Deadline()
	if !planned || now.Before(at) {
		return
	}
	r := &p.cfg.MetricsReports
	p.reportAt = now.Add(r.Every)
	interval := max(r.Every, p.responsePolicy().MaxDisconnectTime())
	m := wire.AgentMetricsReport{IntervalSeconds: uint32(interval / time.Second), Software: p.cfg.Software,
		ScrapeAddress: r.MetricsAddress, Metrics: r.CurrentMetrics()}
	p.PublishAwaitingAnswer(p.core.Sealer.MessageToCoordinator(wire.TypeMetricsReport, 0, 0, m.Body()))
}

// NeedsLink implements part.LinkNeedReporter: the agent stays connected for a report that is due soon, and before the
// agent would be back.
func (p *Part) NeedsLink() bool {
	at, planned := p.Deadline()
	return planned && at.Before(p.core.Loop.Now().Add(min(p.plannedAbsence, reportSpread)))
}
