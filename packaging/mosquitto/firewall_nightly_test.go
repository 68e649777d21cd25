//go:build linux && nightly

package mosquitto_test

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// TestFirewall loads fedmesh.nft in a separate network namespace. A source address with 20 connections must not be able
// to open another connection, while a second source address must be able to connect.
func TestFirewall(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it makes a network of its own, as root")
	}
	nft := brokers.FindProgram(t, "nft")
	// The network namespace belongs to this thread, which ends with the goroutine.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	load := []string{nft, "-f", "fedmesh.nft"}
	// Load the rules twice to check that loading is idempotent.
	for _, command := range [][]string{{"ip", "link", "set", "lo", "up"}, load, load} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", command, err, out)
		}
	}
	for _, of := range []struct{ source, other, at string }{
		{"127.0.0.1", "127.0.0.2", "127.0.0.1:8883"}, {"127.0.0.3", "127.0.0.2", "127.0.0.1:8884"},
	} {
		l, err := net.Listen("tcp", of.at)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		dial := func(source string) error {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}, Timeout: 10 * time.Second}
			c, err := d.Dial("tcp", of.at)
			if err == nil {
				t.Cleanup(func() { _ = c.Close() })
			}
			return err
		}
		for n := range 20 {
			if err := dial(of.source); err != nil {
				t.Fatalf("connection %d to %s: %v", n+1, of.at, err)
			}
		}
		if err := dial(of.source); !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("the 21st connection to %s from one source: %v", of.at, err)
		}
		if err := dial(of.other); err != nil {
			t.Errorf("another source: %v", err)
		}
	}
}
