package e2e

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// TestThroughProxy trains through an HTTP proxy, without direct access to the broker.
func TestThroughProxy(t *testing.T) {
	t.Parallel()
	f := newFederation(t, brokers.OpenMosquitto(t))
	list := f.AddAgents(t, plane(60), "one", "two", "three")
	f.lead(t, list, threeOfThree)
	var tunnels atomic.Int64
	proxy := httpProxy(t, strings.TrimPrefix(f.Broker, "tcp://"), &tunnels)
	daemons := []*testkit.Process{f.Daemon(t, "coordinator", "coordinator", "--set", "broker.proxy="+proxy)}
	daemons = append(daemons, f.Agents(t, []string{"one", "two", "three"}, "--set", "broker.proxy="+proxy)...)
	daemons[0].Await(t, "run finished version=3")
	testkit.StopAll(t, daemons...)
	if n := tunnels.Load(); n != 4 {
		t.Errorf("%d tunnels for 4 programs", n)
	}
}

// httpProxy starts a proxy that allows CONNECT to one address only, and counts the tunnels.
func httpProxy(t *testing.T, allowed string, tunnels *atomic.Int64) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect || r.Host != allowed {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		far, err := net.Dial("tcp", allowed)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer far.Close()
		near, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer near.Close()
		tunnels.Add(1)
		_, _ = io.WriteString(near, "HTTP/1.1 200 Connection established\r\n\r\n")
		go func() {
			_, _ = io.Copy(far, near)
			_ = far.Close()
		}()
		_, _ = io.Copy(near, far)
	}))
	t.Cleanup(server.Close)
	return server.URL
}
