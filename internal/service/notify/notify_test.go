package notify

import (
	"net"
	"path/filepath"
	"testing"
	"time"
)

func TestTell(t *testing.T) {
	for _, name := range []string{filepath.Join(t.TempDir(), "notify"), "@fedmesh-test-" + filepath.Base(t.TempDir())} {
		listener, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
		if err != nil {
			t.Skipf("no such sockets here: %v", err)
		}
		defer listener.Close()
		s, err := Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Send("READY=1", StatusAssignment("two\nlines")); err != nil {
			t.Fatal(err)
		}
		buffer := make([]byte, 100)
		n, err := listener.Read(buffer)
		if got, want := string(buffer[:n]), "READY=1\nSTATUS=two lines"; err != nil || got != want {
			t.Errorf("systemd hears %q, %v; want %q", got, err, want)
		}
	}
}

func TestWithoutSystemd(t *testing.T) {
	s, err := Open("")
	if err != nil || s.Send("READY=1") != nil {
		t.Error("a process that systemd did not start cannot be told so")
	}
	if _, err := Open(filepath.Join(t.TempDir(), "nobody")); err == nil {
		t.Error("a socket where nobody listens is opened")
	}
}

func TestWatchdog(t *testing.T) {
	for _, tt := range []struct {
		usec, pid string
		want      time.Duration
		bad       bool
	}{
		{usec: "", want: 0},
		{usec: "60000000", want: time.Minute},
		{usec: "60000000", pid: "7", want: time.Minute},
		{usec: "60000000", pid: "8", want: 0},
		{usec: "soon", bad: true},
		{usec: "0", bad: true},
		{usec: "9223372036854775807", bad: true},
	} {
		got, err := WatchdogInterval(tt.usec, tt.pid, 7)
		if got != tt.want || (err != nil) != tt.bad {
			t.Errorf("WATCHDOG_USEC=%q WATCHDOG_PID=%q: %v, %v", tt.usec, tt.pid, got, err)
		}
	}
}
