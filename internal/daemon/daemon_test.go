package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

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
	metrics.Registrar{Reg: reg, Namespace: "agentd"}.Gauge("broker_connected", "Whether the broker is connected.")
	server, err := Serve(ctx, "127.0.0.1:0", metrics.Handler(reg, AlwaysReady), quiet())
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
	if _, err := Serve(ctx, listen, metrics.Handler(reg, AlwaysReady), quiet()); err == nil ||
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
	h := metrics.Handler(metrics.NewRegistry("agentd"), r.Err)
	full := errors.New("no space left on device")
	for _, tt := range []struct {
		happens func()
		want    string
	}{
		{func() {}, "503 not ready: the state folder is being opened\n"},
		{r.SetStateOpened, "200 ready\n"},
		{func() { r.SetRefusedFilters([]string{"p/+", "s/+"}) },
			"503 not ready: the broker refuses p/+ and s/+: " + mqtt.RefusalCauses + "\n"},
		{func() { r.SetRefusedFilters(nil) }, "200 ready\n"},
		{func() { r.SetStorageFailing("save the model", full) },
			"503 not ready: cannot save the model: no space left on device\n"},
		{r.ClearStorageFailing, "200 ready\n"},
		{func() { r.SetMissingAnnouncement("the broker has no announcement") },
			"503 not ready: the broker has no announcement\n"},
		{func() { r.SetMissingAnnouncement("") }, "200 ready\n"},
		{func() { r.SetStandby("k2") }, "503 not ready: it stands by: k2 leads\n"},
		{func() { r.SetStandby("") }, "503 not ready: it stands by: nobody that is known leads\n"},
		{r.SetLeading, "200 ready\n"},
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

func TestShort(t *testing.T) {
	for x, want := range map[float64]float64{0: 0, 1: 1, 0.123456: 0.1235, -0.00123456: -0.001235, 98765.4: 98770,
		math.Inf(1): math.Inf(1)} {
		if got := Rounded(x); got != want {
			t.Errorf("short(%v) is %v, want %v", x, got, want)
		}
	}
}
