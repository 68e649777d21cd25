package status_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/agentd/agentstatus"
	"github.com/fedmesh/fedmesh/internal/api"
	"github.com/fedmesh/fedmesh/internal/cli"
	"github.com/fedmesh/fedmesh/internal/status"
)

func ask(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	cmd := status.Command("agentd", func(*cli.ConfigLoader) ([]string, error) { return []string{dir}, nil })
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(append([]string{}, args...)) // with nil, cobra would use the arguments of this process
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func serveOne(ctx context.Context, dir string, v *agentstatus.StatusTracker) {
	api.ServeSocket(ctx, dir, api.Handler([]api.Route{v.StatusRoute()}, api.SocketCaller, nil),
		slog.New(slog.DiscardHandler))
}

// TestSocket requests the status as text and as JSON from a daemon. It repeats the requests after a killed daemon has
// left its socket file, and after the daemon has ended.
func TestSocket(t *testing.T) {
	dir := t.TempDir()
	if _, err := ask(t, dir); err == nil ||
		!strings.Contains(err.Error(), "no running agentd uses the state folder "+dir) {
		t.Errorf("without a daemon: error %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "api.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(t, dir); err == nil || !strings.Contains(err.Error(), "no running agentd") {
		t.Errorf("where one was killed: error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	v := agentstatus.New("v0.1.0", "air", "s1", time.Now, status.NewBoard(time.Now, nil))
	serveOne(ctx, dir, v)
	if text, err := ask(t, dir); err != nil || !strings.Contains(text, "agent s1 of federation air") {
		t.Errorf("got %q, error %v", text, err)
	}
	text, err := ask(t, dir, "--json")
	var got struct{ ID string }
	if err != nil || json.Unmarshal([]byte(text), &got) != nil || got.ID != "s1" || strings.Count(text, "\n") != 1 {
		t.Errorf("got %q, error %v", text, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "api.sock")); err != nil || info.Mode()&os.ModeSocket == 0 {
		t.Errorf("%v, error %v", info, err)
	}
	cancel()
	// repeat until the daemon has closed its socket
	for err == nil || !strings.Contains(err.Error(), "no running agentd") {
		_, err = ask(t, dir)
	}
}

// TestWatch checks that --watch continues when the daemon is restarted, and that it reports the interruption only once.
// If no daemon answers the first request, the command must fail.
func TestWatch(t *testing.T) {
	dir := t.TempDir()
	if text, err := ask(t, dir, "--watch"); err == nil || !strings.Contains(err.Error(), "no running agentd") {
		t.Errorf("without a daemon: %q, error %v", text, err)
	}
	serve := func(id string) context.CancelFunc {
		ctx, cancel := context.WithCancel(t.Context())
		serveOne(ctx, dir, agentstatus.New("v0.1.0", "air", id, time.Now, status.NewBoard(time.Now, nil)))
		return cancel
	}
	stop := serve("s1")
	cmd := status.Command("agentd", func(*cli.ConfigLoader) ([]string, error) { return []string{dir}, nil })
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	cmd.SetOut(w)
	cmd.SetErr(w)
	cmd.SetArgs([]string{"--watch"})
	ended := make(chan error, 1)
	go func() { ended <- errors.Join(cmd.ExecuteContext(ctx), w.Close()) }()
	lines := bufio.NewScanner(r)
	until := func(want string) (least string) {
		for lines.Scan() {
			if least += lines.Text() + "\n"; strings.Contains(lines.Text(), want) {
				return least
			}
		}
		t.Fatalf("never showed %q: %q", want, least)
		return ""
	}
	until("agent s1 of")
	stop()
	until("no running agentd uses the state folder " + dir + "; retrying every second")
	<-time.After(2500 * time.Millisecond)
	defer serve("s2")()
	if text := until("agent s2 of"); strings.Contains(text, "no running agentd") {
		t.Errorf("said it again: %q", text)
	}
	cancel()
	for lines.Scan() {
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
