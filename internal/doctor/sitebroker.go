package doctor

import (
	"context"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
)

// readingsWait is the time for which the doctor waits for sensor readings from the site's broker.
const readingsWait = 3 * time.Second

// checkSiteBroker checks the broker that delivers sensor readings. The client must be able to connect and subscribe,
// and messages must arrive. The check uses its own session, so the daemon may keep running.
func (p *Target) checkSiteBroker(ctx context.Context, r *findingReporter) {
	for _, b := range p.SiteBroker.targetPerURL() {
		r.observationPrefix = "readings.broker " + b.Options.URL + ": "
		if b.checkTCPConnection(ctx, r) {
			b.checkReadingsArrive(ctx, r)
		}
	}
	r.observationPrefix = ""
}

// checkReadingsArrive subscribes to the topics of the readings and waits for messages.
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
	v.reportRefusedFilters("allow this user to read the topic, or use another topic in data.columns")
	switch {
	case len(v.refusedFilters) > 0:
	case came == 0:
		r.addFinding("readings", Warn,
			"wait until the sensors publish, compare the topics in data.columns with the published topics, and check "+
				"the broker's access rules for this user",
			"no sensor messages received within %v on the topics %q",
			readingsWait, b.SubscribedFilters)
	default:
		r.addGoodFinding("readings", "sensor messages received within %v: %d", readingsWait, came)
	}
}
