package metrics_test

import (
	"flag"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/metrics/agentmetrics"
	"github.com/fedmesh/fedmesh/metrics/coordinatormetrics"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
)

var update = flag.Bool("update", false, "rewrite testdata and docs/METRICS.md")

// observer contains the common methods of AgentMetrics and CoordinatorMetrics.
type observer struct {
	tell    func(event observe.Event)
	Traffic func(t mqtt.ObservedMessage, kind mqtt.TopicKind)
}

// program is one of the two programs with its own metrics and a script of events.
type program struct {
	name   string
	make   func(prometheus.Registerer) observer
	script []observe.Event
}

var programs = []program{
	{"agentd", func(reg prometheus.Registerer) observer {
		a := agentmetrics.New(reg, clock, "")
		return observer{func(event observe.Event) { apply(a.Events, event) }, a.CountTraffic}
	}, agentScript},
	{"coordinator", func(reg prometheus.Registerer) observer {
		c := coordinatormetrics.New(reg, clock)
		return observer{func(event observe.Event) {
			apply(c.Events, event)
			c.Observe(event)
		}, c.CountTraffic}
	}, coordinatorScript},
}

// apply updates the metrics with an event.
func apply(m *metrics.EventMetrics, e observe.Event) {
	var d observe.EventDescription
	e.Describe(&d)
	m.ApplySamples(d.MetricSamples)
}

func clock() time.Time { return time.Unix(1_800_000_000, 250e6) }

func (p program) start() (*prometheus.Registry, observer) {
	reg := prometheus.NewPedanticRegistry()
	return reg, p.make(reg)
}

// played returns the registry of the program after all events of its script and some network traffic.
func (p program) played() *prometheus.Registry {
	reg, o := p.start()
	for _, event := range p.script {
		o.tell(event)
	}
	for _, m := range traffic {
		o.Traffic(m.ObservedMessage, m.kind)
	}
	return reg
}

var traffic = []struct {
	mqtt.ObservedMessage
	kind mqtt.TopicKind
}{
	{mqtt.ObservedMessage{IsIncoming: true, PayloadBytes: 300}, mqtt.KindAnnouncement},
	{mqtt.ObservedMessage{IsIncoming: true, PayloadBytes: 60000}, mqtt.KindBlob},
	{mqtt.ObservedMessage{IsIncoming: true, PayloadBytes: 50, IsDropped: true}, mqtt.KindUnknown},
	{mqtt.ObservedMessage{PayloadBytes: 700}, mqtt.KindAgentToCoordinator},
	{mqtt.ObservedMessage{PayloadBytes: 800}, mqtt.KindAgentToCoordinator},
	{mqtt.ObservedMessage{PayloadBytes: 900, IsDropped: true}, mqtt.KindUpdate},
}

// exposition returns a scrape in the text format.
func exposition(t *testing.T, reg *prometheus.Registry) string {
	t.Helper()
	w := httptest.NewRecorder()
	metrics.Handler(reg, nil).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("scrape: status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// seriesOf returns the series of a scrape with their values as text.
func seriesOf(t *testing.T, reg *prometheus.Registry) map[string]string {
	t.Helper()
	series := map[string]string{}
	for line := range strings.Lines(exposition(t, reg)) {
		if line[0] == '#' {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		series[line[:at]] = strings.TrimSpace(line[at:])
	}
	return series
}
