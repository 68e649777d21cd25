package enrol

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// FuzzListener sends anything over TLS: nobody gets in, and the next device does.
func FuzzListener(f *testing.F) {
	o := newOffice(f)
	at, err := o.Listen(f.Context(), "127.0.0.1:0", slog.New(slog.DiscardHandler))
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
		conn, err := tls.Dial("tcp", at.String(), &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = conn.Write(p)
		_ = conn.CloseWrite()
		answer, _ := io.ReadAll(io.LimitReader(conn, 1<<20))
		if len(answer) > 4<<10 {
			t.Errorf("%d bytes for %q", len(answer), p)
		}
		o.mu.Lock()
		n := len(o.members.is)
		o.tries = tries{}
		o.mu.Unlock()
		if n > 0 {
			t.Fatalf("%q is in the list", p)
		}
		a := o.Join(context.Background(), d.join(t, token, "press-02"), binding, home)
		if a.Refused != wire.JoinUnknown {
			t.Errorf("after %q the answer is %v", p, a.Refused)
		}
	})
}
