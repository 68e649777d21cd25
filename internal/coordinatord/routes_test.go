package coordinatord

import (
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/api"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorstatus"
	"github.com/fedmesh/fedmesh/internal/status"
	"github.com/fedmesh/fedmesh/internal/testkit"
)

var update = flag.Bool("update", false, "rewrite docs/openapi*.json")

// TestOpenAPI compares docs/openapi.json with the routes.
func TestOpenAPI(t *testing.T) {
	f := &Federation{statusTracker: coordinatorstatus.New("", "", time.Now, status.NewBoard(time.Now, nil))}
	testkit.Golden(t, "../../docs/openapi.json", string(api.OpenAPIDocument("fedmesh coordinator", "1",
		api.WithOpenAPIRoute("fedmesh coordinator", "1", f.Routes()))), *update)
}

// TestHistoryRoute checks that the route returns all undamaged lines, or only the lines of one run.
func TestHistoryRoute(t *testing.T) {
	f := &Federation{stateDir: t.TempDir()}
	ask := func(query string) (code int, lines []string) {
		w := httptest.NewRecorder()
		api.Handler([]api.Route{f.historyRoute()}, api.SocketCaller, nil).ServeHTTP(w,
			httptest.NewRequest(http.MethodGet, "/v1/history"+query, nil))
		return w.Code, strings.Split(strings.TrimSuffix(w.Body.String(), "\n"), "\n")
	}
	if code, lines := ask(""); code != http.StatusOK || lines[0] != "" {
		t.Errorf("without a history: %d %q", code, lines)
	}
	text := `{"run":7,"round":1,"kind":"training","version":1}` + "\nrubbish\n" +
		`{"run":8,"round":1,"kind":"training","version":1}` + "\n"
	if err := os.WriteFile(filepath.Join(f.stateDir, "history.jsonl"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]int{"": 2, "?run=8": 1, "?run=9": 0} {
		code, lines := ask(query)
		n := 0
		for _, line := range lines {
			if line != "" && json.Valid([]byte(line)) {
				n++
			}
		}
		if code != http.StatusOK || n != want {
			t.Errorf("%q: %d %q, want %d rounds", query, code, lines, want)
		}
	}
	if code, _ := ask("?run=x"); code != http.StatusBadRequest {
		t.Errorf("run x: %d", code)
	}
}
