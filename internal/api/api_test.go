package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/config"
)

type sum struct {
	A int `json:"a"`
	B int `json:"b,omitempty"`
}

// routes returns routes that add numbers and routes that fail in each way.
func routes() []Route {
	return []Route{
		GetRoute("/v1/seven", "Seven.", func(*http.Request) (sum, error) { return sum{A: 7}, nil }),
		PostRoute("/v1/add", "Add.", func(_ *http.Request, s sum) (sum, error) {
			return sum{A: s.A + s.B}, nil
		}),
		GetRoute("/v1/fail/{how}", "Fail.", func(r *http.Request) (sum, error) {
			switch r.PathValue("how") {
			case "bad":
				return sum{}, BadRequest("a bad request")
			case "wrong":
				return sum{}, errors.Join(&config.Error{Origin: "x.yaml", Line: 3, Column: 1, Problem: "a wrong key"})
			}
			return sum{}, errors.New("a disk is full")
		}),
		StreamRoute("/v1/cut", "Cut.", "text/plain", func(w io.Writer, _ *http.Request) error {
			_, _ = w.Write(make([]byte, 1<<20))
			return errors.New("in the middle")
		}),
	}
}

// serve serves the routes in a new folder and returns a client.
func serve(t *testing.T, changed RequestAuditor) Client {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	ServeSocket(ctx, dir, Handler(WithOpenAPIRoute("test", "1", routes()), SocketCaller, changed),
		slog.New(slog.DiscardHandler))
	return Client{Program: "test", Dir: dir, Timeout: time.Minute}
}

// TestSocket checks the client's result for a response, for each kind of error, and for a stream that is cut.
func TestSocket(t *testing.T) {
	var told []string
	me := "owner of the state folder"
	if runtime.GOOS == "linux" {
		me = fmt.Sprint("uid ", os.Getuid())
	}
	var full error // error of the auditor's disk
	c := serve(t, witness{
		asked:    func() error { return full },
		answered: func(who string, r *http.Request, _ error) { told = append(told, r.URL.Path+" "+who) },
	})
	var got sum
	if err := c.Call(t.Context(), http.MethodPost, "/v1/add", sum{2, 3}, &got); err != nil || got.A != 5 {
		t.Errorf("got %v, %v", got, err)
	}
	if err := c.Call(t.Context(), http.MethodGet, "/v1/seven", nil, &got); err != nil || got.A != 7 {
		t.Errorf("got %v, %v", got, err)
	}
	if len(told) != 1 || told[0] != "/v1/add "+me {
		t.Errorf("told is %v", told)
	}
	full = errors.New("the disk is full")
	if err := c.Call(t.Context(), http.MethodPost, "/v1/add", sum{2, 3}, &got); err == nil || got.A != 7 ||
		len(told) != 2 {
		t.Errorf("without a witness: %v, %v, told is %v", got, err, told)
	}
	full = nil
	for path, want := range map[string]Error{
		"/v1/fail/bad":   {Status: 400, Problem: "a bad request"},
		"/v1/fail/wrong": {Status: 422, Problem: "x.yaml:3:1: a wrong key\n  3 | \n    | ^", IsConfigInvalid: true},
		"/v1/fail/other": {Status: 500, Problem: "a disk is full"},
		"/v1/none":       {Status: 404, Problem: "unknown route: GET /v1/none"},
	} {
		var refused *Error
		if err := c.Call(t.Context(), http.MethodGet, path, nil, nil); !errors.As(err, &refused) || *refused != want {
			t.Errorf("%s: %#v", path, err)
		}
	}
	for _, body := range []string{`{"a": 1, "c": 2}`, `{"a": "1"}`, `[`} {
		if _, err := c.CallRaw(t.Context(), http.MethodPost, "/v1/add", "application/json", []byte(body)); err == nil ||
			!strings.Contains(err.Error(), "invalid request body") {
			t.Errorf("%s: %v", body, err)
		}
	}
	if _, err := c.CallRaw(t.Context(), http.MethodGet, "/v1/cut", "text/plain", nil); err == nil {
		t.Error("a part passes for the whole")
	}
	if _, err := c.CallRaw(t.Context(), http.MethodPost, "/v1/add", "", make([]byte, maxBody+1)); err == nil {
		t.Error("any body is taken")
	}
	c.Dir = t.TempDir()
	if err := c.Call(t.Context(), http.MethodGet, "/v1/seven", nil, nil); !errors.Is(err, ErrNotRunning) ||
		err.Error() != "no running test uses the state folder "+c.Dir {
		t.Errorf("got %v", err)
	}
}

// TestNoSocket checks that a daemon that cannot open its socket logs the error and continues.
func TestNoSocket(t *testing.T) {
	var log strings.Builder
	ServeSocket(t.Context(), filepath.Join(t.TempDir(), strings.Repeat("long", 60)), nil,
		slog.New(slog.NewTextHandler(&log, nil)))
	if !strings.Contains(log.String(), "cannot open the command socket") {
		t.Errorf("log: %s", log.String())
	}
}

// TestTokens checks the permissions of each role, and that changes of the file take effect immediately.
func TestTokens(t *testing.T) {
	const viewer, operator = "view-0123456789abcdef", "operate-0123456789abcdef"
	path := filepath.Join(t.TempDir(), "tokens")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("# who may\nview " + viewer + "\n\noperate " + operator + "  alice\noperate " + operator + "2\n")
	if err := TokenFile(path).Check(); err != nil {
		t.Fatal(err)
	}
	told := ""
	caller := func(r *http.Request) Caller {
		secret, _ := BearerToken(r)
		return TokenFile(path).CallerWithToken(HashToken(secret))
	}
	h := Handler(routes(), caller,
		witness{answered: func(who string, _ *http.Request, _ error) { told = who }})
	ask := func(method, path, token string) int {
		r := httptest.NewRequest(method, path, strings.NewReader("{}"))
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != 200 && !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s %s: %q", method, path, w.Body)
		}
		return w.Code
	}
	for _, tt := range []struct {
		method, path, token string
		want                int
		who                 string
	}{
		{"GET", "/v1/seven", viewer, 200, ""}, {"GET", "/v1/seven", operator, 200, ""},
		{"GET", "/v1/seven", "", 401, ""}, {"GET", "/v1/seven", viewer + "x", 401, ""},
		{"POST", "/v1/add", operator, 200, "token alice"}, {"POST", "/v1/add", operator + "2", 200, "token of line 5"},
		{"POST", "/v1/add", viewer, 403, "token of line 2"}, {"POST", "/v1/add", "", 401, ""},
		{"POST", "/v1/seven", operator, 404, ""},
	} {
		told = ""
		if got := ask(tt.method, tt.path, tt.token); got != tt.want || told != tt.who {
			t.Errorf("%s %s with %q: %d by %q, want %d by %q", tt.method, tt.path, tt.token, got, told, tt.want, tt.who)
		}
	}
	write("view " + viewer + "\n")
	if got := ask("GET", "/v1/seven", operator); got != 401 {
		t.Errorf("a token that is gone: %d", got)
	}
	write("view certificate plant-1\noperate certificate plant-2\n")
	for name, want := range map[string]Caller{"plant-1": {Role: RoleView, Name: "certificate plant-1"},
		"plant-2": {Role: RoleOperate, Name: "certificate plant-2"}, "plant-3": {}, "": {}} {
		if got := TokenFile(path).CallerWithCertificate(name); got != want {
			t.Errorf("certificate %q: %+v, want %+v", name, got, want)
		}
	}
	if got := ask("GET", "/v1/seven", "certificate"); got != 401 {
		t.Errorf("the word certificate as a token: %d", got)
	}
	for text, says := range map[string]string{"": "contains no tokens", "view short": ":1: invalid line: want the " +
		"role view or operate",
		"# x\nadmin " + viewer:    ":2: invalid line: want the role view or operate",
		"view " + viewer + " a b": ":1: invalid line: want the role view or",
		"operate certificate":     ":1: invalid line"} {
		write(text)
		if err := TokenFile(path).Check(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestDocument checks that the document contains each route and its types, and that it is served at its path.
func TestDocument(t *testing.T) {
	c := serve(t, nil)
	text, err := c.CallRaw(t.Context(), http.MethodGet, "/v1/openapi.json", "application/json", nil)
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Paths      map[string]map[string]any
		Components struct {
			Schemas map[string]struct{ Required []string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	for _, r := range WithOpenAPIRoute("test", "1", routes()) {
		if d.Paths[r.Path][strings.ToLower(r.Method)] == nil {
			t.Errorf("%s %s is not described", r.Method, r.Path)
		}
	}
	if s := d.Components.Schemas["Sum"]; len(s.Required) != 1 || s.Required[0] != "a" {
		t.Errorf("sum is %+v", s)
	}
}

// witness is a RequestAuditor that calls functions.
type witness struct {
	asked    func() error
	answered func(who string, r *http.Request, err error)
}

func (w witness) BeforeRequest(string, *http.Request) error {
	if w.asked == nil {
		return nil
	}
	return w.asked()
}

func (w witness) AfterRequest(who string, r *http.Request, err error) { w.answered(who, r, err) }
