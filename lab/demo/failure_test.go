package demo

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/broker"
)

// started is a writer that closes a channel when the awaited text has been written.
type started struct {
	text    string
	tell    func()
	written bytes.Buffer
}

// Write implements io.Writer.
func (s *started) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(s.text)) {
		s.tell()
	}
	return s.written.Write(p)
}

func TestInterrupted(t *testing.T) {
	temp := inTemp(t)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	out, errs := started{text: "round   2/50", tell: interrupt}, bytes.Buffer{}
	o := Defaults()
	o.Stdout, o.Stderr = &out, &errs
	_, err := Run(ctx, o)
	if err == nil || err.Error() != "interrupted" || errs.Len() > 0 {
		t.Errorf("error %v, on stderr %q; want only \"interrupted\"", err, &errs)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, error %v", left, err)
	}
}

// TestUnreachableBroker checks that an unreachable broker causes only one line of output.
func TestUnreachableBroker(t *testing.T) {
	inTemp(t)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	errs := started{text: "retry in", tell: interrupt}
	o := Defaults()
	o.Broker, o.Stdout, o.Stderr = "tcp://127.0.0.1:1", io.Discard, &errs
	if _, err := Run(ctx, o); err == nil || err.Error() != "interrupted" {
		t.Errorf("error %v, want interrupted", err)
	}
	if text := errs.written.String(); strings.Count(text, "\n") != 1 ||
		!strings.Contains(text, "cannot reach the broker at tcp://127.0.0.1:1: connection refused; retry in ") {
		t.Errorf("on stderr:\n%s", text)
	}
}

// TestRefused checks that the demo ends at once if the broker refuses the user. If the broker accepts the user, the
// demo must run.
func TestRefused(t *testing.T) {
	inTemp(t)
	server, err := broker.Start(broker.Options{Authenticate: func(_, user, password string) bool {
		return user == "me" && password == "secret"
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := Defaults()
	o.Broker, o.Rounds, o.Stdout, o.Stderr = server.URL(), 1, io.Discard, io.Discard
	if _, err := Run(t.Context(), o); !errors.Is(err, mqtt.ErrRefused) ||
		!strings.Contains(err.Error(), "not Authorized: set --username and --password-file to valid credentials") {
		t.Errorf("without a password: %v", err)
	}
	if testing.Short() {
		return // Skip the rest, because running the whole demonstration takes too long.
	}
	o.Username, o.PasswordFile = "me", secret
	if r, err := Run(t.Context(), o); err != nil || r.Model == "" {
		t.Errorf("with the password: %v", err)
	}
}

// TestAgentFails checks that the demo reports a failed agent and ends.
func TestAgentFails(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var errs bytes.Buffer
	log := slog.New(slog.NewTextHandler(&errs, &slog.HandlerOptions{Level: slog.LevelError}))
	fed, err := layOut(Defaults(), t.TempDir(), log)
	if err != nil {
		t.Fatal(err)
	}
	defer fed.server.Close()
	if err := os.WriteFile(fed.files.train[2], []byte("station,test\nDingling,0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	err = fed.run(ctx, newWatcher(plain{io.Discard}, 3))
	if err == nil || err.Error() != "agent Dingling cannot perform the task: bad_data" {
		t.Errorf("error %v", err)
	}
	if !strings.Contains(errs.String(), `Dingling.csv: line 1: column \"lpm\": this column is missing`) {
		t.Errorf("the log does not say where:\n%s", &errs)
	}
}

// TestProcessFails checks that the demo reports a failed agent process and ends.
func TestProcessFails(t *testing.T) {
	inTemp(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	o := Defaults()
	o.Processes, o.Agentd, o.Stdout, o.Stderr = true, "/bin/false", io.Discard, io.Discard
	if _, err := Run(ctx, o); err == nil || !strings.HasPrefix(err.Error(), "agent ") ||
		!strings.HasSuffix(err.Error(), ": exit status 1") {
		t.Errorf("error %v", err)
	}
	o.Agentd = "/bin/true"
	if _, err := Run(ctx, o); err == nil || !strings.HasSuffix(err.Error(), ": ended before the run was finished") {
		t.Errorf("error %v", err)
	}
}

func TestOutCannotBeMade(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o := Defaults()
	o.Out, o.Stdout, o.Stderr = filepath.Join(file, "out"), io.Discard, io.Discard
	if _, err := Run(t.Context(), o); err == nil || !strings.HasPrefix(err.Error(), "--out: ") {
		t.Errorf("error %v, want one before the run begins", err)
	}
}
