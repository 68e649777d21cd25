package agentd

import (
	"flag"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/agentd/agentstatus"
	"github.com/fedmesh/fedmesh/internal/api"
	"github.com/fedmesh/fedmesh/internal/testkit"
)

var update = flag.Bool("update", false, "rewrite testdata and docs/openapi-agentd.json")

// TestOpenAPI compares docs/openapi-agentd.json with the routes. agentd does not serve this file, because it is 20 kB
// large and the routes are available only on a local socket.
func TestOpenAPI(t *testing.T) {
	testkit.Golden(t, "../../docs/openapi-agentd.json", string(api.OpenAPIDocument("fedmesh agentd", "1",
		agentRoutes(agentstatus.New("", "", "", time.Now, nil), nil))), *update)
}
