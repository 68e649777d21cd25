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
	"sync"
	"testing"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/mqtt"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestVersion(t *testing.T) {
	if v := Version(); v == "" || strings.ContainsAny(v, " \n") {
		t.Errorf("version %q", v) // what it is depends on how the test was built
	}
}

func TestLoggerRefuses(t *testing.T) {
	if _, err := Logger(io.Discard, settings.Log{Level: "loud", Format: "text"}, nil); err == nil {
		t.Error("a level that does not exist is taken")
	}
}

// TestServe wants the metrics served until the context ends.
func TestServe(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reg := metrics.NewRegistry("agentd")
	NewAgentMetrics(reg, "")
	server, err := Serve(ctx, "127.0.0.1:0", metrics.Handler(reg, Ready), quiet())
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
	if _, err := Serve(ctx, listen, metrics.Handler(reg, Ready), quiet()); err == nil ||
		!strings.Contains(err.Error(), listen) {
		t.Errorf("error %v, want one that names the address that is taken", err)
	}
	cancel()
	for err == nil { // until the server has heard of it
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

// TestReadiness wants /-/ready to be false until the state is open, while the broker refuses a subscription, and while
// the state folder takes no writes.
func TestReadiness(t *testing.T) {
	var r Readiness
	works, leads := AgentWatch{newStatus(), &r}, CoordinatorWatch{newStatus(), &r}
	h := metrics.Handler(metrics.NewRegistry("agentd"), r.Err)
	full := errors.New("no space left on device")
	wrong := agent.AnnouncementMissing{Reason: agent.MissingKey, Federation: "air"}
	for _, tt := range []struct {
		happens func()
		want    string
	}{
		{func() {}, "503 not ready: the state folder is being opened\n"},
		{r.Opened, "200 ready\n"},
		{func() { leads.Observe(coordinator.LinkChanged{Up: true}) }, "200 ready\n"},
		{func() { leads.Observe(coordinator.SubscriptionsRefused{Filters: []string{"p/+", "s/+"}}) },
			"503 not ready: the broker refuses p/+ and s/+: " + mqtt.RefusalCauses + "\n"},
		{func() { leads.Observe(coordinator.SubscriptionsRefused{}) }, "200 ready\n"},
		{func() { works.Observe(agent.StorageFailing{What: "save the announcement's place", Err: full}) },
			"503 not ready: cannot save the announcement's place: no space left on device\n"},
		{func() { works.Observe(agent.LinkChanged{Up: true}) },
			"503 not ready: cannot save the announcement's place: no space left on device\n"},
		{func() { works.Observe(agent.StorageMended{}) }, "200 ready\n"},
		{func() { leads.Observe(coordinator.StorageFailing{What: "save the model", Err: full}) },
			"503 not ready: cannot save the model: no space left on device\n"},
		{func() { leads.Observe(coordinator.StorageMended{}) }, "200 ready\n"},
		{func() { works.Observe(agent.AnnouncementMissing{Reason: agent.MissingNone}) }, "200 ready\n"},
		{func() { works.Observe(wrong) }, "503 not ready: " + wrong.Advice() + "\n"},
		{func() { works.Observe(agent.AnnouncementMissing{}) }, "200 ready\n"},
		{func() { works.Observe(agent.SubscriptionsRefused{Filters: []string{"round"}}) },
			"503 not ready: the broker refuses round: " + mqtt.RefusalCauses + "\n"},
		{func() { works.Observe(agent.SubscriptionsRefused{}) }, "200 ready\n"},
	} {
		tt.happens()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/-/ready", nil))
		if got := fmt.Sprint(w.Code, " ", w.Body); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

func TestServeNowhere(t *testing.T) {
	if url, err := Serve(t.Context(), "", nil, quiet()); url != nil || err != nil {
		t.Errorf("%v, error %v; want nothing", url, err)
	}
}

// TestAgentMetricsAreShared is for the race detector: each agent of a process
// reports from a goroutine of its own.
func TestAgentMetricsAreShared(t *testing.T) {
	reg := metrics.NewRegistry("agentd")
	m := NewAgentMetrics(reg, "")
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 100 {
				m.Observe(agent.LinkChanged{Up: true})
			}
		})
	}
	all.Wait()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "agentd_broker_reconnects_total" {
			if got := f.GetMetric()[0].GetCounter().GetValue(); got != 399 {
				t.Errorf("%v reconnects, want 399", got)
			}
			return
		}
	}
	t.Error("no agentd_broker_reconnects_total")
}
