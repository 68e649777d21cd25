package status

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/fedmesh/fedmesh/internal/api"
)

// fetchTimeout is the time limit for a request of a daemon's status.
const fetchTimeout = 5 * time.Second

// Path is the API path of the status page.
const Path = "/v1/status"

// DrawableStatus is the status of a daemon. It can be drawn as text and encoded as JSON.
type DrawableStatus interface {
	// Draw returns the status as text with lines of at most width characters.
	Draw(width int) string
}

// fetchStatus requests the status from the daemon with the given state folder. The result is JSON, or text of the given
// width in columns.
func fetchStatus(ctx context.Context, program, dir string, json bool, width int, patience time.Duration) ([]byte,
	error) {
	c := api.Client{Program: program, Dir: dir, Timeout: patience}
	if json {
		return c.CallRaw(ctx, http.MethodGet, Path, "application/json", nil)
	}
	return c.CallRaw(ctx, http.MethodGet, Path+"?width="+strconv.Itoa(width), "text/plain", nil)
}
