package external_test

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/agent/external"
)

// serving runs a program that listens on a socket and serves one connection after another. It sends each connection,
// and its end, to the returned channels.
func serving(t *testing.T, path, mode string) (conns chan net.Conn, ended chan struct{}, line net.Listener) {
	t.Helper()
	line, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	conns, ended = make(chan net.Conn, 10), make(chan struct{}, 10)
	go func() {
		for {
			conn, err := line.Accept()
			if err != nil {
				return
			}
			conns <- conn
			play(mode, conn, conn)
			_ = conn.Close()
			ended <- struct{}{}
		}
	}()
	t.Cleanup(func() { _ = line.Close() })
	return conns, ended, line
}

// TestSocket checks that the agent uses a program that runs independently over the program's socket. If the connection
// is cut or the program does not run, the block must fail with the reason, and later blocks must succeed.
func TestSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trainer.sock")
	d := &device{TB: t}
	d.begin(t.Context(), external.Config{SocketPath: path, SilenceTimeout: time.Minute}, nil)
	fit := func(want string) {
		t.Helper()
		d.trainer.Hurry()
		b, base, x := d.block(t.Context(), 4)
		switch err := b.TakeSteps(x, 1, 4); {
		case want == "" && (err != nil || x[2] != nearer(base[2], 0.5, 4)):
			t.Errorf("parameters %v, error %v", x, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("error %v, want %q", err, want)
		}
	}
	fit("cannot connect to the trainer")
	conns, ended, line := serving(t, path, "")
	fit("")
	d.mu.Lock()
	begun, ok := d.events[len(d.events)-1].(external.ProgramStarted)
	d.mu.Unlock()
	if !ok || !strings.Contains(begun.UnconfinedReason, "an independent process at socket "+path) {
		t.Errorf("%+v", begun)
	}
	_ = (<-conns).Close()
	<-ended
	fit("the trainer")
	fit("")
	_ = line.Close()
	if err := d.trainer.Close(); err != nil {
		t.Error(err)
	}
	<-ended // The program detects the end of its input and closes the connection.
}
