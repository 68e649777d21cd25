package mqtt_test

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// proxy forwards connections and closes them on demand. It may terminate TLS for a broker.
type proxy struct {
	listener net.Listener
	target   string
	mu       sync.Mutex
	conns    []net.Conn
	running  sync.WaitGroup
}

func startProxy(t *testing.T, url string, config *tls.Config) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if config != nil {
		listener = tls.NewListener(listener, config)
	}
	p := &proxy{listener: listener, target: strings.TrimPrefix(url, "tcp://")}
	p.running.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		p.cut()
		p.running.Wait()
	})
	return p
}

func (p *proxy) url() string { return "tcp://" + p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = near.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, near, far)
		p.mu.Unlock()
		p.running.Go(func() { forward(near, far) })
		p.running.Go(func() { forward(far, near) })
	}
}

func forward(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_ = to.Close()
	_ = from.Close()
}

// cut closes all connections, as a crash would.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}
