package doctor

import (
	"context"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
)

// readingsWait is how long the doctor waits for readings from the site's broker.
const readingsWait = 3 * time.Second

// checkSiteBroker examines the broker that readings come from: whether it lets the client in and read, and whether
// anything comes. The session is not the daemon's, so the daemon may run.
func (p *Target) checkSiteBroker(ctx context.Context, r *findingReporter) {
	for _, b := range p.SiteBroker.targetPerURL() {
		r.observationPrefix = "readings.broker " + b.Options.URL + ": "
		if b.checkTCPConnection(ctx, r) {
			b.checkReadingsArrive(ctx, r)
		}
	}
	r.observationPrefix = ""
}

// checkReadingsArrive subscribes to the topics of the readings and waits for some.
func (b *BrokerTarget) checkReadingsArrive(ctx context.Context, r *findingReporter) {
	v := b.openSession(ctx, r)
	if v == nil {
		return
	}
	defer v.conn.Close()
	came := 0
	v.awaitEvent(ctx, readingsWait, func(e mqtt.Event) bool {
		if _, ok := e.(mqtt.MessageReceived); ok {
			came++
		}
		return false
	})
	v.reportRefusedFilters("let this user read the topic, or name another one in data.columns")
	switch {
	case len(v.refusedFilters) > 0:
	case came == 0:
		r.addFinding("readings", Warn,
			"wait for the next ones, compare the topics in data.columns with what is published, "+
				"and see whether the broker's rules let this user read them", "nothing came within %v of the topics %q",
			readingsWait, b.SubscribedFilters)
	default:
		r.addGoodFinding("readings", "messages within %v: %d", readingsWait, came)
	}
}
