package daemon

import (
	"bytes"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/cmd/internal/api"
	"github.com/fedmesh/fedmesh/cmd/internal/status"
)

var update = flag.Bool("update", false, "rewrite docs/openapi.json")

// TestOpenAPI holds the description in the docs against the routes.
func TestOpenAPI(t *testing.T) {
	f := &Federation{view: status.NewCoordinator("", "", time.Now)}
	routes := api.Described("fedmesh coordinator", "1", f.Routes())
	got := api.Document("fedmesh coordinator", "1", routes)
	const path = "../../../docs/openapi.json"
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not that of the routes (%v): go test ./cmd/internal/daemon -run TestOpenAPI -update", path, err)
	}
}
