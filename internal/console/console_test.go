package console

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/internal/api"
)

const viewer, operator = "view-0123456789abcdef", "operate-0123456789abcdef"

// newServer returns a Server with an injected clock and without a listener. tokens is the text of its token file;
// without a text, the server has no token file.
func newServer(t *testing.T, tokens string, control bool, now *time.Time) *Server {
	t.Helper()
	s := &Server{cfg: Config{Program: "coordinator", Page: CoordinatorPage(), Control: control,
		SessionKey: []byte("key"),
		Now:        func() time.Time { return *now }, Log: slog.New(slog.DiscardHandler)}}
	s.access.cfg = &s.cfg
	if tokens != "" {
		s.cfg.Tokens = api.TokenFile(filepath.Join(t.TempDir(), "tokens"))
		if err := os.WriteFile(string(s.cfg.Tokens), []byte(tokens), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.SetContent(Content{Routes: []api.Route{
		api.GetRoute("/v1/seven", "Return 7.", func(*http.Request) (int, error) { return 7, nil }),
		api.GetRoute("/v1/secret", "Return 8.", func(*http.Request) (int, error) { return 8, nil }).WithName(),
		api.PostRoute("/v1/set", "Set.", func(*http.Request, api.EmptyBody) (int, error) { return 9, nil }),
	}})
	return s
}

// request is a request of a test.
type request struct {
	method, path, body, host, from string
	header                         map[string]string
	certificate                    string // common name of the verified client certificate
}

func (q request) send(s *Server) *httptest.ResponseRecorder {
	r := httptest.NewRequest(q.method, q.path, strings.NewReader(q.body))
	r.Host = "127.0.0.1:9466"
	if q.host != "" {
		r.Host = q.host
	}
	r.RemoteAddr = "192.0.2.7:1234"
	if q.from != "" {
		r.RemoteAddr = q.from
	}
	for name, value := range q.header {
		r.Header.Set(name, value)
	}
	if q.certificate != "" {
		r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{Subject: pkix.Name{
			CommonName: q.certificate}}}}}
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w
}

func bearer(token string) map[string]string {
	return map[string]string{"Authorization": "Bearer " + token}
}

// TestAccess checks who may do what: with and without tokens, certificates and console.control.
func TestAccess(t *testing.T) {
	now := time.Unix(1000, 0)
	tokens := "view " + viewer + " v\noperate " + operator + " o\noperate certificate plant-1\n"
	open, readOnly, control := newServer(t, "", false, &now), newServer(t, tokens, false, &now),
		newServer(t, tokens, true, &now)
	for i, tt := range []struct {
		server *Server
		request
		want int
	}{
		{open, request{method: "GET", path: "/v1/seven"}, 200},
		{open, request{method: "GET", path: "/v1/seven", host: "localhost"}, 200},
		{open, request{method: "GET", path: "/v1/seven", host: "[::1]:9466"}, 200},
		{open, request{method: "GET", path: "/v1/seven", host: "evil.example:9466"}, 403}, // DNS rebinding
		{open, request{method: "GET", path: "/v1/feed", host: "evil.example"}, 403},
		{open, request{method: "GET", path: "/v1/secret"}, 403},
		{open, request{method: "POST", path: "/v1/set"}, 403},
		{open, request{method: "POST", path: "/v1/session", body: `{"token":"` + operator + `"}`}, 400},
		{readOnly, request{method: "GET", path: "/v1/seven"}, 401},
		{readOnly, request{method: "GET", path: "/v1/feed"}, 401},
		{readOnly, request{method: "GET", path: "/v1/seven", header: bearer(viewer)}, 200},
		{readOnly, request{method: "GET", path: "/v1/seven", host: "plant.example", header: bearer(viewer)}, 200},
		{readOnly, request{method: "GET", path: "/v1/secret", header: bearer(viewer)}, 200},
		{readOnly, request{method: "POST", path: "/v1/set", header: bearer(operator)}, 403},
		{control, request{method: "POST", path: "/v1/set", header: bearer(operator)}, 200},
		{control, request{method: "POST", path: "/v1/set", header: bearer(viewer)}, 403},
		{control, request{method: "POST", path: "/v1/set", certificate: "plant-1"}, 200},
		{control, request{method: "GET", path: "/v1/seven", certificate: "plant-2"}, 401},
		{control, request{method: "GET", path: "/v1/nothing", header: bearer(viewer)}, 404},
		{control, request{method: "GET", path: "/"}, 200}, // the page itself contains no data
		{control, request{method: "GET", path: "/server.go"}, 404},
		{control, request{method: "GET", path: "/vendor/uPlot.LICENSE"}, 404},
	} {
		if got := tt.send(tt.server); got.Code != tt.want {
			t.Errorf("case %d, %s %s: status %d, want %d: %s", i, tt.method, tt.path, got.Code, tt.want, got.Body)
		}
	}
}

// logIn returns the session cookie that the server returns for a token.
func logIn(t *testing.T, s *Server, token string) *http.Cookie {
	t.Helper()
	w := request{method: "POST", path: "/v1/session", body: `{"token":"` + token + `"}`}.send(s)
	if w.Code != 200 || len(w.Result().Cookies()) != 1 {
		t.Fatalf("login: %d %s", w.Code, w.Body)
	}
	return w.Result().Cookies()[0]
}

// TestSession checks the session cookie: its attributes, and that it ends after twelve hours, when its token is
// removed, or when one bit changes. It survives a restart of the server.
func TestSession(t *testing.T) {
	now := time.Unix(1000, 0)
	s := newServer(t, "operate "+operator+"\n", true, &now)
	cookie := logIn(t, s, operator)
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Path != "/" ||
		strings.Contains(cookie.Value, operator) {
		t.Errorf("cookie %+v", cookie)
	}
	post := func(value string) int {
		cookie := map[string]string{"Cookie": sessionCookie + "=" + value}
		return request{method: "POST", path: "/v1/set", header: cookie}.send(s).Code
	}
	if got := post(cookie.Value); got != 200 {
		t.Errorf("with a session: %d", got)
	}
	restarted := newServer(t, "", true, &now)
	restarted.cfg.Tokens = s.cfg.Tokens
	s = restarted
	if got := post(cookie.Value); got != 200 {
		t.Errorf("after a restart: %d", got)
	}
	for i := range len(cookie.Value) - 1 { // the last character has unused bits
		forged := []byte(cookie.Value)
		if forged[i]++; forged[i] == cookie.Value[i] || post(string(forged)) != 401 {
			t.Errorf("a cookie with another character %d is accepted", i)
		}
	}
	now = now.Add(sessionLifetime)
	if got := post(cookie.Value); got != 401 {
		t.Errorf("after twelve hours: %d", got)
	}
	now = now.Add(-time.Second)
	if got := post(cookie.Value); got != 200 {
		t.Errorf("before twelve hours: %d", got)
	}
	if err := os.WriteFile(string(s.cfg.Tokens), []byte("view "+viewer+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := post(cookie.Value); got != 401 {
		t.Errorf("after the token was removed: %d", got)
	}
}

// TestTokenGuessing checks that a source is blocked after five wrong tokens, also for the right one, and that other
// sources are not.
func TestTokenGuessing(t *testing.T) {
	now := time.Unix(1000, 0)
	s := newServer(t, "view "+viewer+"\n", false, &now)
	body := func(token string) string { return `{"token":"` + token + `"}` }
	for i := range host.MaxAttempts {
		q := request{method: "POST", path: "/v1/session", body: body(fmt.Sprint("guess", i))}
		if i%2 == 1 { // guesses in the header count as well
			q = request{method: "GET", path: "/v1/seven", header: bearer(fmt.Sprint("guess", i))}
		}
		if w := q.send(s); w.Code != 401 {
			t.Errorf("guess %d: %d", i, w.Code)
		}
	}
	for _, tt := range []struct {
		from string
		wait time.Duration
		want int
	}{{"192.0.2.7:99", 0, 429}, {"192.0.2.8:1", 0, 200}, {"192.0.2.7:99", 2 * time.Minute, 200}} {
		now = now.Add(tt.wait)
		w := request{method: "POST", path: "/v1/session", body: body(viewer), from: tt.from}.send(s)
		if w.Code != tt.want {
			t.Errorf("from %s after %v: %d, want %d", tt.from, tt.wait, w.Code, tt.want)
		}
	}
}

// TestCrossSite checks that a page of another site cannot use a session.
func TestCrossSite(t *testing.T) {
	now := time.Unix(1000, 0)
	s := newServer(t, "operate "+operator+"\n", true, &now)
	cookie := sessionCookie + "=" + logIn(t, s, operator).Value
	for i, tt := range []struct {
		header map[string]string
		want   int
	}{
		{map[string]string{"Sec-Fetch-Site": "same-origin"}, 200},
		{map[string]string{"Sec-Fetch-Site": "cross-site"}, 403},
		{map[string]string{"Sec-Fetch-Site": "same-site"}, 403},
		{map[string]string{"Origin": "https://evil.example"}, 403},
		{map[string]string{"Origin": "null"}, 403},
	} {
		tt.header["Cookie"] = cookie
		for _, q := range []request{{method: "POST", path: "/v1/set"}, {method: "DELETE", path: "/v1/session"}} {
			if q.header = tt.header; q.send(s).Code != tt.want {
				t.Errorf("case %d, %s %s: want %d", i, q.method, q.path, tt.want)
			}
		}
	}
}

// TestHeaders checks that each response forbids frames, inline scripts and styles, and other sites.
func TestHeaders(t *testing.T) {
	now := time.Unix(1000, 0)
	s := newServer(t, "", false, &now)
	for _, path := range []string{"/", "/app.js", "/v1/seven", "/v1/nothing", "/nothing"} {
		header := request{method: "GET", path: path}.send(s).Header()
		policy := header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self';", "style-src 'self';",
			"frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s: the policy %q lacks %q", path, policy, want)
			}
		}
		if strings.Contains(policy, "unsafe") || header.Get("X-Frame-Options") != "DENY" ||
			header.Get("X-Content-Type-Options") != "nosniff" || header.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: headers %v", path, header)
		}
	}
}

// TestPageSize checks that all files of the page together have at most 250 kB, and that none of them refers to another
// site.
func TestPageSize(t *testing.T) {
	total := 0
	var walk func(dir string)
	walk = func(dir string) {
		entries, err := coordinatorFiles.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			name := dir + "/" + e.Name()
			if e.IsDir() {
				walk(name)
				continue
			}
			text, err := coordinatorFiles.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			total += len(text)
			plain := strings.ReplaceAll(string(text), "http://www.w3.org/2000/svg", "")
			if !strings.Contains(name, "vendor") &&
				(strings.Contains(plain, "http://") || strings.Contains(plain, "https://")) {
				t.Errorf("%s refers to another site", name)
			}
		}
	}
	walk("assets")
	if total > 250_000 {
		t.Errorf("the page has %d bytes", total)
	}
}

// TestAbsence checks that the console names the leader while the coordinator is on standby.
func TestAbsence(t *testing.T) {
	now := time.Unix(1000, 0)
	s := newServer(t, "", false, &now)
	s.SetContent(Content{Absence: &Absence{Reason: "on standby; the leader is b", URL: "https://b.example/"}})
	var session Session
	if err := json.NewDecoder(request{method: "GET", path: "/v1/session"}.send(s).Body).Decode(&session); err != nil {
		t.Fatal(err)
	}
	if session.Absence == nil || session.Absence.URL != "https://b.example/" {
		t.Errorf("session %+v", session)
	}
	for _, path := range []string{"/v1/seven", "/v1/feed"} {
		w := request{method: "GET", path: path}.send(s)
		if w.Code != 503 || !strings.Contains(w.Body.String(), "leader is b") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

// TestServe checks that Start serves until its context ends, and that an address in use is an error.
func TestServe(t *testing.T) {
	var log strings.Builder
	cfg := Config{Program: "coordinator", Page: CoordinatorPage(), Listen: "127.0.0.1:0",
		SessionKey: []byte("key"), Now: time.Now,
		Log: slog.New(slog.NewTextHandler(&log, nil))}
	s, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.Get(s.URL() + "v1/session")
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(r.Body)
	_ = r.Body.Close()
	if !strings.Contains(string(text), "the coordinator is starting") {
		t.Errorf("session %s", text)
	}
	cfg.Listen = s.address.String()
	if _, err := Start(t.Context(), cfg); err == nil {
		t.Error("two consoles have the same address")
	}
	if !strings.Contains(log.String(), "url="+s.URL()) {
		t.Errorf("log %s", log.String())
	}
}
