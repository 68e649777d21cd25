package coordinatord

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/enrol"
	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/internal/api"
	"github.com/fedmesh/fedmesh/internal/coordinatord/agentlist"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorsettings"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorstatus"
	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// fleetOf returns a federation with n enrolled devices and a state folder. Its log is written to w.
func fleetOf(t testing.TB, n int, w io.Writer) *Federation {
	dir := t.TempDir()
	s := coordinatorsettings.Default()
	s.Identity.AgentListFile = filepath.Join(dir, "agents.keys")
	var list strings.Builder
	for k := range n {
		var seed [ed25519.SeedSize]byte
		binary.LittleEndian.PutUint64(seed[:], uint64(k))
		key := ed25519.NewKeyFromSeed(seed[:]).Public().(ed25519.PublicKey)
		fmt.Fprintf(&list, "device-%05d %s\n", k, base64.StdEncoding.EncodeToString(key))
	}
	if err := os.WriteFile(s.Identity.AgentListFile, []byte(list.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	o := testOptions(slog.New(slog.NewTextHandler(w, nil)), metrics.NewRegistry("coordinator"))
	return &Federation{file: &s, stateDir: dir, o: o,
		statusTracker: coordinatorstatus.New("", "air", time.Now, o.Board)}
}

// ask requests the list of devices.
func (f *Federation) ask(query string) (code int, text string) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/v1/devices?width=200&"+query, nil)
	r.Header.Set("Accept", "text/plain")
	api.Handler([]api.Route{f.devicesRoute()}, api.SocketCaller, nil).ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestDevicesRoute(t *testing.T) {
	f := fleetOf(t, 3, io.Discard)
	f.statusTracker.Observe(coordinator.AgentListChanged{ListedAgents: 3})
	f.statusTracker.Observe(coordinator.MessageAccepted{Agent: "device-00001"})
	f.statusTracker.Observe(round.AgentEligible{Agent: "device-00001", RowCount: 12})
	if code, text := f.ask("sort=-rows"); code != http.StatusOK || !strings.Contains(text, "1 present, 2 never seen") {
		t.Errorf("answer %d: %s", code, text)
	}
	if _, text := f.ask("state=present"); !strings.Contains(text, "-00001") || strings.Contains(text, "-00002") {
		t.Errorf("present: %s", text)
	}
	for _, wrong := range []string{"sort=weight", "state=asleep"} {
		if code, text := f.ask(wrong); code != http.StatusBadRequest {
			t.Errorf("%s: answer %d: %s", wrong, code, text)
		}
	}
}

// TestDevicesAreKept checks that the device history is saved every ten minutes and at the end, and is loaded by the
// next process. A damaged file is logged, and the history then starts empty.
func TestDevicesAreKept(t *testing.T) {
	var log strings.Builder
	f := fleetOf(t, 2, &log)
	path := filepath.Join(f.stateDir, runs.DeviceHistory.Name)
	rounds := func() string {
		f.statusTracker = coordinatorstatus.New("", "air", time.Now, f.o.Board)
		f.loadDeviceHistory()
		_, text := f.ask("sort=-rounds")
		return strings.Join(strings.Fields(text), " ")
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		go f.saveDeviceHistoryPeriodically(ctx)
		join := func(r wire.RoundID) {
			f.statusTracker.Observe(coordinator.MessageAccepted{Agent: "device-00001"})
			f.statusTracker.Observe(round.AgentJoined{Agent: "device-00001", Round: r})
		}
		join(1)
		<-time.After(deviceHistoryInterval - time.Second)
		if _, err := os.Stat(path); err == nil {
			t.Error("it is written early")
		}
		<-time.After(2 * time.Second)
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
		<-time.After(deviceHistoryInterval)
		if _, err := os.Stat(path); err == nil {
			t.Error("it is written again, although nothing has changed")
		}
		join(2)
		end()
		synctest.Wait()
	})
	if text := rounds(); !strings.Contains(text, "device-00001 absent") || !strings.Contains(text, "ago - - - 2 -") {
		t.Errorf("kept: %s", text)
	}
	saved, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	saved[len(saved)/2] ^= 1
	if err := os.WriteFile(path, saved, 0o600); err != nil {
		t.Fatal(err)
	}
	if text := rounds(); !strings.Contains(text, "2 never seen") ||
		!strings.Contains(log.String(), "cannot read the history of devices") {
		t.Errorf("damaged: %s%s", text, log.String())
	}
}

// TestRevokeAgain checks that the same command repeats a revocation that failed after the list was edited.
func TestRevokeAgain(t *testing.T) {
	f := fleetOf(t, 2, io.Discard)
	f.enrolment, f.file.StateDir = &enrolmentService{federation: f}, f.stateDir
	ctx, end := context.WithCancel(t.Context())
	end() // no coordinator is running that could load the list
	for _, what := range []string{"first", "again"} {
		err := f.enrolment.revokeDevice(ctx, "device-00001")
		if !errors.Is(err, context.Canceled) || errors.Is(err, coordinator.ErrUnlisted) {
			t.Errorf("%s: %v, want that the coordinator has not taken the list", what, err)
		}
		text, err := os.ReadFile(f.file.Identity.AgentListFile)
		if err != nil || strings.Contains(string(text), "device-00001") {
			t.Errorf("%s: the list is %q, %v", what, text, err)
		}
	}
	if err := f.enrolment.revokeDevice(ctx, wire.CoordinatorID); !errors.Is(err, coordinator.ErrUnlisted) {
		t.Errorf("the coordinator itself: %v", err)
	}
}

// TestAdmitChecks checks that a device is rejected if its id or key was taken after the first check.
func TestAdmitChecks(t *testing.T) {
	f := fleetOf(t, 2, io.Discard)
	f.enrolment, f.file.StateDir = &enrolmentService{federation: f}, f.stateDir
	before, err := os.ReadFile(f.file.Identity.AgentListFile)
	if err != nil {
		t.Fatal(err)
	}
	is, err := agentlist.LookupAgentAndKey(f.file.Identity.AgentListFile, "device-00001", nil)
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[wire.AgentID]error{"device-00000": enrol.ErrListed, "new": enrol.ErrOther} {
		if err := f.enrolment.Admit(t.Context(), id, wire.SigningPublicKey(is.AgentKey), ""); !errors.Is(err, want) {
			t.Errorf("%s with the key of device-00001: %v, want %v", id, err, want)
		}
	}
	if text, err := os.ReadFile(f.file.Identity.AgentListFile); err != nil || !bytes.Equal(text, before) {
		t.Errorf("the list is %q, %v", text, err)
	}
}

// BenchmarkDevices lists 10⁴ devices with reports and measures the memory per device.
func BenchmarkDevices(b *testing.B) {
	const n = 10_000
	f := fleetOf(b, n, io.Discard)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	readings := make([]wire.ReportMetric, 52)
	for k := range readings {
		readings[k] = wire.ReportMetric{ID: uint8(k + 1), Value: float64(k)}
	}
	for k := range n {
		id := wire.AgentID(fmt.Sprintf("device-%05d", k))
		f.statusTracker.Observe(coordinator.MessageAccepted{Agent: id})
		f.statusTracker.Observe(coordinator.AgentReportReceived{Agent: id, BootEpoch: 1,
			Report: wire.AgentMetricsReport{SoftwareVersion: "agentd v0.4.0",
				Metrics: readings}})
		f.statusTracker.Observe(round.AgentEligible{Agent: id, RowCount: 100})
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	for b.Loop() {
		if code, _ := f.ask("sort=-bytes"); code != http.StatusOK {
			b.Fatal(code)
		}
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/n, "heapB/device")
}
