package broker

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	mochi "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"
)

// A sweep comes each second, so the time of the bubble passes some.
func TestRetainedMessagesNeverExpire(t *testing.T) {
	for name, c := range map[string]struct {
		expiry int64 // seconds, to replace ours
		kept   bool
	}{
		"ours":    {mochiOptions(defaultMaxPacket, defaultMaxConns).Capabilities.MaximumMessageExpiryInterval, true},
		"mochi's": {mochi.NewDefaultServerCapabilities().MaximumMessageExpiryInterval, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := mochiOptions(defaultMaxPacket, defaultMaxConns)
				o.Capabilities.MaximumMessageExpiryInterval = c.expiry
				s := mochi.New(o)
				s.Topics.RetainMessage(packets.Packet{
					FixedHeader: packets.FixedHeader{Type: packets.Publish, Retain: true},
					TopicName:   "m/old", Payload: []byte{1},
					Created: time.Now().Add(-48 * time.Hour).Unix(),
				})
				if err := s.Serve(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Second) //nolint:forbidigo // in a synctest bubble
				synctest.Wait()
				if _, kept := s.Topics.Retained.Get("m/old"); kept != c.kept {
					t.Errorf("kept is %v, want %v", kept, c.kept)
				}
				_ = s.Close()
			})
		})
	}
}

func TestNoConnectNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		l := newListener(nil, 1, slog.New(slog.DiscardHandler))
		c := newConn(ours, queueBytes, l.slow)
		server := mochi.New(mochiOptions(defaultMaxPacket, 1))
		begun := time.Now()
		l.begin(c)
		l.serve(c, server.EstablishConnection)
		if took := time.Since(begun); took != connectTimeout {
			t.Errorf("closed after %v, want %v", took, connectTimeout)
		}
		if _, err := theirs.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("reading from a closed connection: %v", err)
		}
	})
}

func TestWriteNeverBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe() // holds nothing: each write waits for a reader
		defer theirs.Close()
		var overflowed *conn
		c := newConn(ours, 100, func(c *conn) { overflowed = c })
		for range 10 {
			if n, err := c.Write(make([]byte, 10)); n != 10 || err != nil {
				t.Fatalf("Write: %d, %v", n, err)
			}
		}
		if _, err := c.Write([]byte{0}); !errors.Is(err, errTooSlow) || overflowed != c {
			t.Errorf("overflow: %v", err)
		}
		c.wait()
		if _, err := c.Write([]byte{0}); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Write after overflow: %v", err)
		}
	})
}

func TestWriteDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		c := newConn(ours, 100, nil)
		begun := time.Now()
		_, _ = c.Write([]byte("nobody reads"))
		// Mochi's deadline for reading leaves writing alone.
		_ = c.SetDeadline(begun.Add(time.Millisecond))
		c.wait()
		if took := time.Since(begun); took != writeTimeout {
			t.Errorf("given up after %v, want %v", took, writeTimeout)
		}
	})
}

func TestCloseSendsWhatIsQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		c := newConn(ours, 100, nil)
		_, _ = c.Write([]byte("why "))
		_, _ = c.Write([]byte("not"))
		_ = c.Close()
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("can be read after Close")
		}
		if got, err := io.ReadAll(theirs); string(got) != "why not" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
		c.wait()
	})
}

func TestCloseDoesNotWaitForAStalledClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		c := newConn(ours, 100, nil)
		_, _ = c.Write([]byte("nobody reads"))
		begun := time.Now()
		_ = c.Close()
		c.wait()
		if took := time.Since(begun); took != lingerTimeout {
			t.Errorf("took %v, want %v", took, lingerTimeout)
		}
	})
}
