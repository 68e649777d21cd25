package broker

import (
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	mochi "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/fedmesh/fedmesh/internal/testkit/acltest"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
)

// TestRetainedMessagesNeverExpire checks that mochi, which looks for expired messages every second, deletes no retained
// message. The test runs on simulated time.
func TestRetainedMessagesNeverExpire(t *testing.T) {
	for name, c := range map[string]struct {
		expiry int64 // expiry interval in seconds, which replaces the interval of mochiOptions
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
				<-time.After(10 * time.Second)
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
		l := newListener(nil, Options{MaxConns: 1, MaxConnsPerIP: 1, Logger: slog.New(slog.DiscardHandler)})
		c := newConn(ours, queueBytes, l.reportSlowClient)
		server := mochi.New(mochiOptions(defaultMaxPacket, 1))
		begun := time.Now()
		l.admit(c)
		l.serve(c, server.EstablishConnection)
		if took := time.Since(begun); took != connectTimeout {
			t.Errorf("closed after %v, want %v", took, connectTimeout)
		}
		if _, err := theirs.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("reading from a closed connection: %v", err)
		}
	})
}

// TestTheFileIsWhatIsRetained checks that the file of a topic contains the topic's newest retained message, although
// mochi may report concurrent messages in a different order.
func TestTheFileIsWhatIsRetained(t *testing.T) {
	s := mochi.New(nil)
	k := &retainedStore{dir: t.TempDir(), topics: s.Topics, logger: slog.New(slog.DiscardHandler)}
	h := &mochiHook{retainedStore: k}
	message := func(payload string) packets.Packet {
		return packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Publish, Retain: true}, TopicName: "x",
			Payload: []byte(payload)}
	}
	s.Topics.RetainMessage(message("older"))
	s.Topics.RetainMessage(message("newer"))
	for _, payload := range []string{"newer", "older"} {
		h.retainedMutex.Lock() // OnPublish has locked the mutex before mochi calls OnRetainMessage
		h.OnRetainMessage(nil, message(payload), 1)
	}
	if pk, err := readRetained(filepath.Join(k.dir, retainedFileName("x")), 100); err != nil ||
		string(pk.Payload) != "newer" {
		t.Errorf("on disk is %q, %v", pk.Payload, err)
	}
}

// TestNoHandshakeNoConnection checks that the time limit for CONNECT includes a slow TLS handshake.
func TestNoHandshakeNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := &tls.Config{Certificates: []tls.Certificate{acltest.NewAuthority(t).Issue(t, "broker")}}
		ours, theirs := net.Pipe()
		defer theirs.Close()
		l := newListener(nil, Options{MaxConns: 1, MaxConnsPerIP: 1, Logger: slog.New(slog.DiscardHandler)})
		c := newConn(tls.Server(ours, config), queueBytes, l.reportSlowClient)
		begun := time.Now()
		l.admit(c)
		l.serve(c, func(string, net.Conn) error {
			t.Error("mochi was given a connection without TLS")
			return nil
		})
		if took := time.Since(begun); took != connectTimeout {
			t.Errorf("closed after %v, want %v", took, connectTimeout)
		}
	})
}

// TestTLSDoesNotWaitForAStalledClient checks that closing a TLS connection does not wait for a client that has stopped
// reading. The package crypto/tls would wait five seconds to send its close_notify message.
func TestTLSDoesNotWaitForAStalledClient(t *testing.T) {
	for name, end := range map[string]struct {
		do   func(c *conn)
		most time.Duration
	}{
		"close": {func(c *conn) { _ = c.Close() }, lingerTimeout},
		"abort": {func(c *conn) { c.abort() }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := acltest.NewAuthority(t) // the certificate is valid at the simulated time
				config := &tls.Config{Certificates: []tls.Certificate{a.Issue(t, "broker")}}
				ours, theirs := net.Pipe()
				defer theirs.Close()
				c := newConn(tls.Server(ours, config), 100, nil)
				client := tls.Client(theirs, &tls.Config{RootCAs: a.Pool(), ServerName: "127.0.0.1"})
				go func() {
					_ = client.Handshake()
					_, _ = client.Read(make([]byte, 1)) // read the data that follow the handshake
				}()
				if err := c.handshake(time.Now().Add(connectTimeout)); err != nil {
					t.Fatal(err)
				}
				_, _ = c.Write([]byte("x"))
				synctest.Wait() // the client is connected and stops reading
				begun := time.Now()
				end.do(c)
				c.wait()
				if took := time.Since(begun); took > end.most {
					t.Errorf("took %v, want at most %v", took, end.most)
				}
			})
		})
	}
}

// TestAnIdleConnectionHasNoWriteDeadline checks that an idle connection has no write deadline. TLS cannot write after a
// write timeout, and it may write while mochi is idle.
func TestAnIdleConnectionHasNoWriteDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		c := newConn(ours, 100, nil)
		_, _ = c.Write([]byte("x"))
		<-time.After(2 * writeTimeout)
		if _, err := ours.Write([]byte("x")); err != nil {
			t.Errorf("after a pause: %v", err)
		}
		c.abort()
		c.wait()
	})
}

func TestSourceOfAConnection(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1:1883":           "192.0.2.1",
		"[::ffff:192.0.2.1]:1883":  "192.0.2.1",
		"[2001:db8:1:2:3::4]:1883": "2001:db8:1:2::",
		"[fe80::1%lo]:1883":        "fe80::",
	} {
		addr, err := net.ResolveTCPAddr("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if got := sourceAddress(&conn{Conn: from{addr: addr}}); got.String() != want {
			t.Errorf("%s counts as %v, want %s", address, got, want)
		}
	}
}

type from struct {
	net.Conn
	addr net.Addr
}

func (f from) RemoteAddr() net.Addr { return f.addr }

// TestSessionsExpire checks that the session of a disconnected client is deleted after a day.
func TestSessionsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mochi.New(mochiOptions(defaultMaxPacket, defaultMaxConns))
		cl := s.NewClient(nil, "", "left", false)
		s.Clients.Add(cl)
		cl.Stop(nil)
		<-time.After(23 * time.Hour)
		if err := s.Serve(); err != nil {
			t.Fatal(err)
		}
		<-time.After(10 * time.Second)
		if _, ok := s.Clients.Get("left"); !ok {
			t.Error("forgotten within the day")
		}
		<-time.After(2 * time.Hour)
		if _, ok := s.Clients.Get("left"); ok {
			t.Error("still known after a day")
		}
		_ = s.Close()
	})
}

func TestWriteNeverBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe() // the pipe is unbuffered, so each write waits for a reader
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
		synctest.Wait() // wait until the write is in progress
		// The deadline set by mochi applies only to reads.
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

// TestQueueHoldsWhatACoordinatorLends checks that the chunks credited by a coordinator fill at most half of its queue,
// because an overflow closes its connection.
func TestQueueHoldsWhatACoordinatorLends(t *testing.T) {
	if lent := transfer.DefaultReceiverConfig().MaxOutstandingBytes; lent > queueBytes/2 {
		t.Errorf("%d bytes of chunks may be on their way to a queue of %d", lent, queueBytes)
	}
}
