package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/internal/status"
	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestVersion(t *testing.T) {
	if v := Version(); v == "" || strings.ContainsAny(v, " \n") {
		t.Errorf("version %q", v) // the version depends on how the test was built
	}
}

func TestLoggerRefuses(t *testing.T) {
	if _, err := NewLogger(io.Discard, settings.Log{Level: "loud", Format: "text"}, nil, nil); err == nil {
		t.Error("a level that does not exist is taken")
	}
}

// TestServe checks that the metrics are served until the context ends.
func TestServe(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reg := metrics.NewRegistry("agentd")
	metrics.Registrar{Reg: reg, Namespace: "agentd"}.NewGauge("broker_connected", "Whether the broker is connected.")
	server, err := ServeMetrics(ctx, "127.0.0.1:0", metrics.Handler(reg, AlwaysReady), quiet())
	if err != nil {
		t.Fatal(err)
	}
	url := server.URL()
	body, err := get(url)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(body, "\nagentd_broker_connected 0\n") {
		t.Errorf("no agentd_broker_connected in\n%s", body)
	}
	listen := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/metrics")
	if _, err := ServeMetrics(ctx, listen, metrics.Handler(reg, AlwaysReady), quiet()); err == nil ||
		!strings.Contains(err.Error(), listen) {
		t.Errorf("error %v, want one that names the address that is taken", err)
	}
	cancel()
	for err == nil { // repeat until the server has stopped, which happens shortly after ctx ends
		_, err = get(url)
	}
}

func get(url string) (string, error) {
	r, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	return string(body), err
}

// TestReadiness checks that /-/ready lists each condition that makes the daemon unready, with its remedy.
func TestReadiness(t *testing.T) {
	line := NewStatusLine()
	board := line.NewBoard("")
	reader := EventDispatcher{Log: quiet(), Board: board,
		Metrics: metrics.NewEventMetrics(metrics.Registrar{Reg: metrics.NewRegistry("a")}, time.Now)}
	h := metrics.Handler(metrics.NewRegistry("agentd"), line.ReadinessErr)
	full := errors.New("no space left on device")
	for _, tt := range []struct {
		happens func()
		want    string
	}{
		{func() {}, "503 not ready: the program is starting and has not opened its state folder yet; wait for a " +
			"moment; if the program does not become ready, check its log\n"},
		{func() { board.ResolveCondition(status.StartingCondition.Name) }, "200 ready\n"},
		{func() { reader.Observe(host.RefusedSubscriptionsChanged{Filters: []string{"p/+", "s/+"}}) },
			"503 not ready: the broker refuses subscriptions to p/+, s/+; " + mqtt.RefusalRemedy + "\n"},
		{func() { reader.Observe(host.RefusedSubscriptionsChanged{}) }, "200 ready\n"},
		{func() { reader.Observe(host.RefusedSubscriptionsChanged{NeighborBrokerFilters: []string{"n/+"}}) },
			"200 ready\n"},
		{func() { reader.Observe(host.StorageFailing{Operation: "save the model", Err: full}) },
			"503 not ready: cannot save the model: no space left on device; make state_dir writable, and free " +
				"some space; the write is retried until it succeeds\n"},
		{func() { reader.Observe(host.StorageRecovered{}) }, "200 ready\n"},
	} {
		tt.happens()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/-/ready", nil))
		if got := fmt.Sprint(w.Code, " ", w.Body); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

// described is an event whose Describe method is a function that the test provides.
type described func(d *observe.EventDescription)

func (e described) Describe(d *observe.EventDescription) { e(d) }

// TestRemedyInLog checks that a logged warning contains the remedy of the condition that its event raises, and no other
// remedy.
func TestRemedyInLog(t *testing.T) {
	for _, tt := range []struct {
		event described
		want  string
	}{
		{func(d *observe.EventDescription) {
			d.Log(observe.Warn, "w")
			d.ResolveCondition("b")
			d.RaiseCondition("a", "p", "do x")
		}, `level=WARN msg=w remedy="do x"`},
		{func(d *observe.EventDescription) {
			d.Log(observe.Info, "i")
			d.RaiseCondition("a", "p", "do x")
		},
			"level=INFO msg=i"},
		{func(d *observe.EventDescription) { d.Log(observe.Warn, "w"); d.ResolveCondition("a") },
			"level=WARN msg=w"},
		{func(d *observe.EventDescription) {
			d.Log(observe.Error, "e")
			d.RaiseCondition("a", "p", "do x")
			d.RaiseCondition("b", "p", "do y")
		}, "level=ERROR msg=e"},
		{func(d *observe.EventDescription) {
			d.Log(observe.Warn, "w", "remedy", "do z")
			d.RaiseCondition("a", "p", "do x")
		}, `level=WARN msg=w remedy="do z"`},
	} {
		var log strings.Builder
		withoutTime := &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}
		r := EventDispatcher{Log: slog.New(slog.NewTextHandler(&log, withoutTime)), Board: status.NewBoard(time.Now,
			nil),
			Metrics: metrics.NewEventMetrics(metrics.Registrar{Reg: metrics.NewRegistry("a")}, time.Now)}
		r.Observe(tt.event)
		if got := strings.TrimSpace(log.String()); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

func TestServeNowhere(t *testing.T) {
	if url, err := ServeMetrics(t.Context(), "", nil, quiet()); url != nil || err != nil {
		t.Errorf("%v, error %v; want nothing", url, err)
	}
}
