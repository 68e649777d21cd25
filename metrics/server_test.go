package metrics

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func start(t *testing.T, addr string, h http.Handler) *Server {
	t.Helper()
	s, err := StartServer(addr, h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func ask(t *testing.T, method, url string) (status int, contentType, body string) {
	t.Helper()
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Content-Type"), string(text)
}

func TestHandler(t *testing.T) {
	var notReady error
	reg := NewRegistry("agentd")
	Registrar{Reg: reg, Namespace: "agentd"}.NewGauge("broker_connected", "Whether the broker is connected.")
	base := "http://" + start(t, "127.0.0.1:0", Handler(reg, func() error { return notReady })).Addr().String()
	for _, tt := range []struct {
		name, method, path string
		ready              error
		status             int
		contentType, body  string
	}{
		{"metrics", "GET", "/metrics", nil, 200, "text/plain; version=0.0.4", "agentd_broker_connected 0\n"},
		{"runtime", "GET", "/metrics", nil, 200, "text/plain; version=0.0.4", "\ngo_goroutines "},
		{"build", "GET", "/metrics", nil, 200, "text/plain; version=0.0.4", "\nagentd_build_info{goversion=\"go"},
		{"healthy", "GET", "/-/healthy", nil, 200, "text/plain", "healthy\n"},
		{"healthy though not ready", "GET", "/-/healthy", errors.New("no broker"), 200, "text/plain", "healthy\n"},
		{"ready", "GET", "/-/ready", nil, 200, "text/plain", "ready\n"},
		{"not ready", "GET", "/-/ready", errors.New("no broker yet"), 503, "text/plain", "not ready: no broker yet\n"},
		{"unknown", "GET", "/debug/pprof/", nil, 404, "text/plain", "not found"},
		{"no page at the root", "GET", "/", nil, 404, "text/plain", "not found"},
		{"read only", "POST", "/metrics", nil, 405, "text/plain", "Method Not Allowed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			notReady = tt.ready
			status, contentType, body := ask(t, tt.method, base+tt.path)
			if status != tt.status || !strings.HasPrefix(contentType, tt.contentType) ||
				!strings.Contains(body, tt.body) {
				t.Errorf("status %d, type %q, body %.200q; want %d, %q, a body with %q", status, contentType, body,
					tt.status, tt.contentType, tt.body)
			}
		})
	}
}

// TestText checks that a client that accepts gzip receives the same metrics, compressed. If metrics cannot be gathered,
// the answer must be an error instead of incomplete metrics.
func TestText(t *testing.T) {
	reg := NewRegistry("agentd")
	get := func(encoding string) *httptest.ResponseRecorder {
		r, w := httptest.NewRequest(http.MethodGet, "/metrics", nil), httptest.NewRecorder()
		r.Header.Set("Accept-Encoding", encoding)
		Handler(reg, nil).ServeHTTP(w, r)
		return w
	}
	plain, packed := get("identity"), get("gzip, deflate")
	if got := packed.Header().Get("Content-Encoding"); got != "gzip" || plain.Header().Get("Content-Encoding") != "" {
		t.Fatalf("Content-Encoding %q", got)
	}
	zip, err := gzip.NewReader(packed.Body)
	if err != nil {
		t.Fatal(err)
	}
	unpacked, err := io.ReadAll(zip)
	if err != nil {
		t.Fatal(err)
	}
	const whole = "\nprocess_start_time_seconds "
	if !strings.Contains(string(unpacked), whole) || !strings.Contains(plain.Body.String(), whole) {
		t.Errorf("plain:\n%s\nunpacked:\n%s", plain.Body, unpacked)
	}
	c := prometheus.NewDesc("broken", "a metric that cannot be read", nil, nil)
	reg.MustRegister(broken{c})
	if w := get("gzip"); w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "no disk") ||
		w.Header().Get("Content-Encoding") != "" {
		t.Errorf("status %d, %v, body %.200q", w.Code, w.Header(), w.Body)
	}
}

// broken is a collector whose metric cannot be collected.
type broken struct{ desc *prometheus.Desc }

func (b broken) Describe(to chan<- *prometheus.Desc) { to <- b.desc }

func (b broken) Collect(to chan<- prometheus.Metric) {
	to <- prometheus.NewInvalidMetric(b.desc, errors.New("no disk"))
}

func TestListen(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", ":0", "localhost:0"} {
		s := start(t, addr, http.NotFoundHandler())
		if ip := s.Addr().(*net.TCPAddr).IP; !ip.IsLoopback() {
			t.Errorf("%q listens on %v, want loopback", addr, ip)
		}
		if h := s.http; min(h.ReadHeaderTimeout, h.ReadTimeout, h.WriteTimeout, h.IdleTimeout) <= 0 {
			t.Errorf("%q: a timeout is not set: %+v", addr, h)
		}
	}
	taken := start(t, "127.0.0.1:0", http.NotFoundHandler()).Addr().String()
	for addr, want := range map[string]string{
		"9464": "is not host:port", "": "is not host:port",
		"127.0.0.1:many": "cannot listen", taken: "the port may be in use",
	} {
		if _, err := StartServer(addr, http.NotFoundHandler()); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), fmt.Sprintf("%q", addr)) {
			t.Errorf("Listen(%q): %v; want the address and %q", addr, err, want)
		}
	}
}

// TestClose checks that Close waits for active requests until the context is done.
func TestClose(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	s, err := StartServer("127.0.0.1:0", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-release
	}))
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan error, 1)
	go func() {
		client := http.Client{Timeout: 10 * time.Second}
		resp, err := client.Get("http://" + s.Addr().String())
		if err == nil {
			_ = resp.Body.Close()
		}
		asked <- err
	}()
	<-entered
	done, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Close(done); !errors.Is(err, context.Canceled) ||
		!strings.Contains(err.Error(), "active requests were aborted") {
		t.Errorf("closing with a request under way: %v", err)
	}
	if err := <-asked; err == nil {
		t.Error("the request was answered though it was cut off")
	}
	close(release)
	if err := s.Close(context.Background()); err != nil {
		t.Errorf("closing again: %v", err)
	}
}

// TestCloseTellsAnEarlierFailure checks that Close returns the error of a listener that failed earlier.
func TestCloseTellsAnEarlierFailure(t *testing.T) {
	s, err := StartServer("127.0.0.1:0", http.NotFoundHandler())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.listener.Close(); err != nil {
		t.Fatal(err)
	}
	<-s.stopped
	if err := s.Close(context.Background()); err == nil ||
		!strings.Contains(err.Error(), "server stopped unexpectedly") {
		t.Errorf("close after the listener died: %v", err)
	}
}

func TestBuildOf(t *testing.T) {
	stamped := func(version, modified string) *debug.BuildInfo {
		return &debug.BuildInfo{
			Main:     debug.Module{Version: version},
			Settings: []debug.BuildSetting{{Key: "vcs.modified", Value: modified}, {Key: "vcs.revision", Value: "abc"}},
		}
	}
	for _, tt := range []struct {
		info              *debug.BuildInfo
		version, revision string
	}{
		{nil, "unknown", "unknown"},
		{&debug.BuildInfo{}, "unknown", "unknown"},
		{stamped("v1.2.3", "false"), "v1.2.3", "abc"},
		{stamped("v1.2.4+dirty", "true"), "v1.2.4+dirty", "abc-dirty"},
	} {
		if version, revision := buildVersionOf(tt.info); version != tt.version || revision != tt.revision {
			t.Errorf("%+v: %s, %s; want %s, %s", tt.info, version, revision, tt.version, tt.revision)
		}
	}
}
