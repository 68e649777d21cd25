package enrol

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/wire"
)

// FuzzListener sends arbitrary requests over TLS. None may be admitted, and a valid device must be admitted afterwards.
func FuzzListener(f *testing.F) {
	o := newOffice(f)
	at, err := o.ListenForJoins(f.Context(), "127.0.0.1:0", slog.New(slog.DiscardHandler))
	if err != nil {
		f.Fatal(err)
	}
	token := o.token("press-01", "", time.Hour)
	d := newDevice(f, 9)
	body := d.join(f, token, "press-01").Bytes()
	f.Add([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
	f.Add([]byte(fmt.Sprintf("POST /join HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)))
	f.Add([]byte("POST /join HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n" + string(make([]byte, 5000))))
	f.Add([]byte("POST /join HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n\x01\x00\r\n0\r\n\r\n"))
	f.Fuzz(func(t *testing.T, p []byte) {
		conn := dialed(t, at.String())
		defer conn.Close()
		_, _ = conn.Write(p)
		_ = conn.CloseWrite()
		answer, _ := io.ReadAll(io.LimitReader(conn, 1<<20))
		if len(answer) > 4<<10 {
			t.Errorf("%d bytes for %q", len(answer), p)
		}
		o.mu.Lock()
		n := len(o.members.is)
		o.attemptLimiter.ForgetFailures()
		o.mu.Unlock()
		if n > 0 {
			t.Fatalf("%q is in the list", p)
		}
		a := o.Join(context.Background(), d.join(t, token, "press-02"), binding, home)
		if a.RefusalReason != wire.EnrolmentUnknownToken {
			t.Errorf("after %q the answer is %v", p, a.RefusalReason)
		}
	})
}

// dialed connects to a listener. It retries until earlier connections of the source are closed.
func dialed(t *testing.T, at string) *tls.Conn {
	t.Helper()
	for began := time.Now(); ; {
		conn, err := tls.Dial("tcp", at, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})
		if err == nil {
			return conn
		}
		if time.Since(began) > time.Minute { // the listener closes each connection after some seconds
			t.Fatal(err)
		}
	}
}

// visitors is an in-memory net.Listener.
type visitors chan net.Conn

func (v visitors) Accept() (net.Conn, error) {
	if c, open := <-v; open {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (v visitors) Close() error   { return nil }
func (v visitors) Addr() net.Addr { return &net.TCPAddr{} }

// receive serves join requests on an in-memory listener until end is called.
func (o *office) receive(t *testing.T) (in visitors, end func()) {
	t.Helper()
	in, ended := make(visitors), make(chan struct{})
	go func() {
		_ = o.newJoinServer(slog.New(slog.DiscardHandler)).Serve(o.newBoundedTLSListener(in))
		close(ended)
	}()
	return in, func() {
		close(in)
		<-ended
	}
}

// visitor is the listener's end of a connection.
type visitor struct {
	net.Conn
	from netip.AddrPort
}

func (v visitor) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(v.from) }

// TestListenerIsShared checks that a source that sends nothing holds at most four connections, each for four seconds. A
// source that is blocked after failed attempts holds no connections.
func TestListenerIsShared(t *testing.T) {
	o := newOffice(t)
	synctest.Test(t, func(t *testing.T) {
		in, end := o.receive(t)
		defer end()
		from := func(a netip.Addr) <-chan time.Duration {
			own, theirs := net.Pipe()
			in <- visitor{theirs, netip.AddrPortFrom(a, 1)}
			lasted, since := make(chan time.Duration, 1), time.Now()
			go func() {
				_, _ = io.Copy(io.Discard, own)
				lasted <- time.Since(since)
			}()
			return lasted
		}
		var all []<-chan time.Duration
		for range mostOfOne {
			all = append(all, from(home))
		}
		if d := <-from(home); d != 0 {
			t.Errorf("one too many is closed after %s", d)
		}
		for range host.MaxAttempts {
			o.CountMalformedRequest(home.Next())
		}
		if d := <-from(home.Next()); d != 0 {
			t.Errorf("one without a try left is closed after %s", d)
		}
		other := from(home.Next().Next())
		for _, c := range append(all, other) {
			if d := <-c; d != greeting {
				t.Errorf("a silent one is closed after %s, want %s", d, greeting)
			}
		}
		if d := <-from(home); d != greeting {
			t.Errorf("later one is closed after %s", d)
		}
	})
}

// TestSlowCoordinator checks that failed attempts of another source are answered while a join request waits for the
// coordinator, and that the join request ends.
func TestSlowCoordinator(t *testing.T) {
	o := newOffice(t)
	o.members.wait = true
	token := o.token("press-01", "", time.Hour)
	j := newDevice(t, 9).join(t, token, "press-01")
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		done := make(chan wire.EnrolmentAnswer)
		go func() { done <- o.Join(ctx, j, binding, home) }()
		synctest.Wait()
		for range host.MaxAttempts {
			o.CountMalformedRequest(home.Next())
		}
		if a := o.Join(ctx, j, binding, home.Next()); a.RefusalReason != wire.EnrolmentTooManyTries {
			t.Errorf("another one: %v", a.RefusalReason)
		}
		end()
		if a := <-done; a.RefusalReason != wire.EnrolmentStorageFailed {
			t.Errorf("the slow one: %v", a.RefusalReason)
		}
	})
}

// TestSlowAnswer checks that a join request over the network is answered in time although the coordinator does not
// accept the list.
func TestSlowAnswer(t *testing.T) {
	o := newOffice(t)
	o.members.wait = true
	token, d := o.token("press-01", "", time.Hour), newDevice(t, 9)
	synctest.Test(t, func(t *testing.T) {
		in, end := o.receive(t)
		defer end()
		own, theirs := net.Pipe()
		in <- visitor{theirs, netip.AddrPortFrom(home, 1)}
		conn := tls.Client(own, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})
		defer conn.Close()
		if err := conn.Handshake(); err != nil {
			t.Fatal(err)
		}
		state, since := conn.ConnectionState(), time.Now()
		binding, err := state.ExportKeyingMaterial(wire.EnrolmentExporterLabel, nil, 32)
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.NewRequest(http.MethodPost, "https://x"+Path,
			bytes.NewReader(d.joinOver(t, binding, token, "press-01").Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Write(conn); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(conn), r)
		if err != nil {
			t.Fatal(err)
		}
		p, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if a, err := wire.DecodeEnrolmentAnswer(p); err != nil || a.RefusalReason != wire.EnrolmentStorageFailed {
			t.Errorf("the answer is %v, %v", a.RefusalReason, err)
		}
		if took := time.Since(since); took != patience {
			t.Errorf("it came after %s, want %s", took, patience)
		}
	})
}
