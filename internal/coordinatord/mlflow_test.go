package coordinatord

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorstatus"
	"github.com/fedmesh/fedmesh/internal/coordinatord/history"
	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/wire"
)

// roundTripper is an http.RoundTripper that does not use a network.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestTrackingTells checks that log, status and metric show when MLflow becomes unavailable and when it is back.
func TestTrackingTells(t *testing.T) {
	var log strings.Builder
	reg := metrics.NewRegistry("coordinator")
	o := testOptions(slog.New(slog.NewTextHandler(&log, nil)), reg)
	f := &Federation{stateDir: t.TempDir(), statusTracker: coordinatorstatus.New("v", "air", time.Now, o.Board), o: o}
	line := `{"run":7,"round":1,"kind":"training","version":1}` + "\n"
	if err := os.WriteFile(filepath.Join(f.stateDir, "history.jsonl"), []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		away.Store(true)
		end := f.logToMLflow(t.Context(), &history.MLflowTracking{URL: "http://mlflow", Experiment: "air",
			ReadAppliedTask: func() (wire.RunID, []config.Setting) { return 0, nil },
			HTTP: &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) {
				if away.Load() {
					return nil, errors.New("nobody is there")
				}
				return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(
					`{"experiment":{"experiment_id":"1"},"run":{"info":{"run_id":"x"}}}`))}, nil
			})}})
		defer end()
		const problem = "cannot log rounds to MLflow"
		<-time.After(time.Minute)
		synctest.Wait() // also wait for goroutines that run at that moment
		if text := f.statusTracker.Status().Draw(300); !strings.Contains(text, problem) ||
			!strings.Contains(text, "nobody is there") || strings.Count(log.String(), problem) != 1 ||
			tracked(t, reg) != 0 {
			t.Errorf("away: metric %v, status\n%slog\n%s", tracked(t, reg), text, log.String())
		}
		away.Store(false)
		<-time.After(5 * time.Minute)
		synctest.Wait()
		if text := f.statusTracker.Status().Draw(300); strings.Contains(text, problem) || tracked(t, reg) != 1 ||
			strings.Count(log.String(), "logging rounds to MLflow") != 1 {
			t.Errorf("back: metric %v, status\n%slog\n%s", tracked(t, reg), text, log.String())
		}
	})
}

// tracked returns the metric's value, or -1 if the metric is absent.
func tracked(t *testing.T, reg *prometheus.Registry) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range families {
		if x.GetName() == "coordinator_mlflow_ok" {
			return x.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return -1
}
