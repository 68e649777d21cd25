package mqtt

import (
	"bytes"
	"net"
	"net/url"
	"testing"
)

// FuzzTunnel checks that a proxy's answer to CONNECT is read up to a size limit, and that an invalid HTTP answer is
// rejected.
func FuzzTunnel(f *testing.F) {
	for _, answer := range []string{"HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 407 Proxy\r\n\r\n",
		"HTTP/1.1 200 OK\r\n\r\nmore", "HTTP/1.0 200\r\nContent-Length: 5\r\n\r\n", "SSH-2.0\r\n"} {
		f.Add([]byte(answer))
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		conn := &answering{answer: bytes.NewReader(answer)}
		err := requestProxyTunnel(conn, &url.URL{Scheme: "http", Host: "proxy:3128"}, "broker:8883")
		if read := len(answer) - conn.answer.Len(); read > maxProxyAnswer {
			t.Errorf("%d bytes were read: %v", read, err)
		}
		if err == nil && !bytes.HasPrefix(answer, []byte("HTTP/")) {
			t.Errorf("%q is taken for an answer", answer)
		}
	})
}

// answering is a connection whose remote end sends a fixed answer and closes the connection.
type answering struct {
	net.Conn
	answer *bytes.Reader
}

func (a *answering) Read(p []byte) (int, error)  { return a.answer.Read(p) }
func (a *answering) Write(p []byte) (int, error) { return len(p), nil }
