package agent

import (
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// MetricsReportConfig is how an agent tells those who watch the fleet how it is doing.
type MetricsReportConfig struct {
	Every          time.Duration // whole seconds; 0 = it does not
	MetricsAddress string        // where others may read its metrics, as host:port; may be empty
	// CurrentMetrics returns what is measured now. It is called by the agent's own
	// goroutine and must not block.
	CurrentMetrics func() []wire.ReportMetric
}

// reportSpread is over how long the first reports are spread: agents come
// together after a power cut.
const reportSpread = time.Minute

// planReport is called when the link comes up, and by the first announcement. A report that is still to come
// keeps its time, so that a link that flaps does not make more of them.
func (a *Agent) planReport(now time.Time) {
	if r := &a.cfg.Reports; r.Every > 0 && !a.metricsReportAt.After(now) {
		a.metricsReportAt = now.Add(time.Duration(a.cfg.Rand.Float64() * float64(min(r.Every, reportSpread))))
	}
}

// reportDue returns when the next report is to be sent, if one is. Without an announcement it is not known to which key
// it is sealed.
func (a *Agent) reportDue() (time.Time, bool) {
	return a.metricsReportAt, a.core.Connected && a.cfg.Reports.Every > 0 && !a.budget.Spent() &&
		a.newestAnnouncementHash != (wire.Digest{})
}

// sendMetricsReport sends a report if it is due. A lost report is not missed: the next
// one says more.
func (a *Agent) sendMetricsReport(now time.Time) {
	at, due := a.reportDue()
	if !due || now.Before(at) {
		return
	}
	r := &a.cfg.Reports
	a.metricsReportAt = now.Add(r.Every)
	every := max(r.Every, a.core.Announcement.Announcement.Respond.MaxAwayTime())
	m := wire.AgentReport{IntervalSeconds: uint32(every / time.Second), Software: a.cfg.Software,
		ScrapeAddress: r.MetricsAddress,
		Metrics:       r.CurrentMetrics()}
	a.publishExpectingAnswer(mqtt.Message{Topic: a.cfg.Topics.AgentToCoordinator(a.cfg.ID),
		Payload: a.signer.SealedEnvelope(a.signer.coordinatorSealKey, wire.TypeReport, 0, 0, m.Body()),
		QoS:     mqtt.AtMostOnce})
}
