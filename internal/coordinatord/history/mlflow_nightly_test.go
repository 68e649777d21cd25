//go:build nightly

package history

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// TestMLflowServer logs to MLflow's own server from PyPI, with each of its stores. It exports twice and follows a
// history while the server is killed.
func TestMLflowServer(t *testing.T) {
	python := virtualenv(t, "mlflow==3.17.2")
	for _, store := range []string{"sqlite:///mlflow.db", "file-store"} {
		t.Run(store, func(t *testing.T) { testMLflow(t, filepath.Join(filepath.Dir(python), "mlflow"), store) })
	}
}

func testMLflow(t *testing.T, program, store string) {
	dir, address := t.TempDir(), brokers.FreeAddress(t)
	about := tracking("http://"+address, &http.Client{}, 150)
	start := func() *testkit.Process {
		cmd := exec.Command(program, "server", "--host", "127.0.0.1", "--port", address[len("127.0.0.1:"):],
			"--workers", "1", "--backend-store-uri", store, "--default-artifact-root", "artifacts")
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "MLFLOW_ALLOW_FILE_STORE=true")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		p := testkit.Start(t, cmd)
		t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }) // kill its workers too
		testkit.Until(t, "MLflow answers", func() bool { return NewMLflow(t.Context(), about).OpenExperiment() == nil })
		return p
	}
	server := start()
	points := func(wants int) {
		t.Helper()
		m := NewMLflow(t.Context(), about)
		if err := m.OpenExperiment(); err != nil {
			t.Fatal(err)
		}
		m.run = &trackedRun{number: 7}
		found, err := m.client.findRun(m.experimentID, m.runTags())
		if err != nil || found == nil {
			t.Fatal(found, err)
		}
		n, keys := 0, 0
		for _, key := range []string{"risk", "seconds", "accepted", "selected"} {
			for _, err := range m.client.metricPositions(found.Info.ID, key) {
				if n++; err != nil {
					t.Fatal(err)
				}
			}
			keys++
		}
		if n != keys*wants || len(found.Data.Params) != 150 {
			t.Errorf("%d values, want %d; %d parameters", n, keys*wants, len(found.Data.Params))
		}
	}
	all := many(7, 700)
	for range 2 {
		write(t, NewMLflow(t.Context(), about), all[:600])
		points(600)
	}
	followAcrossKill(t, about, all, server, start)
	points(700)
}

// followAcrossKill follows a growing history while the server is killed and restarted.
func followAcrossKill(t *testing.T, about *MLflowTracking, all []runs.HistoryEntry, server *testkit.Process,
	start func() *testkit.Process) {
	dir := t.TempDir()
	add := func(all []runs.HistoryEntry) {
		file, err := os.OpenFile(filepath.Join(dir, "history.jsonl"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			if err := json.NewEncoder(file).Encode(e); err != nil {
				t.Fatal(err)
			}
		}
		_ = file.Close()
	}
	add(all[:650])
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	results := make(chan error, 1000)
	go FollowToMLflow(ctx, dir, about, func(err error) { results <- err })
	await := func(good bool) {
		t.Helper()
		for deadline := time.After(testkit.Patience); ; {
			select {
			case err := <-results:
				if (err == nil) == good {
					return
				}
			case <-deadline:
				t.Fatalf("no try with good = %v", good)
			}
		}
	}
	await(true)
	_ = syscall.Kill(-server.Cmd.Process.Pid, syscall.SIGKILL)
	add(all[650:])
	await(false)
	start()
	await(true)
}
