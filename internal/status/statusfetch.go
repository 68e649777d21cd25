package status

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/fedmesh/fedmesh/internal/api"
)

// fetchTimeout is the time limit for a daemon's status.
const fetchTimeout = 5 * time.Second

// Path is the API path of the status.
const Path = "/v1/status"

// DrawableStatus is the status of a daemon as text and JSON.
type DrawableStatus interface {
	// Draw returns the status as text with lines of at most width characters.
	Draw(width int) string
}

// fetchStatus requests the status from the daemon with this state folder, as JSON or as text of the given width.
func fetchStatus(ctx context.Context, program, dir string, json bool, width int, patience time.Duration) ([]byte,
	error) {
	c := api.Client{Program: program, Dir: dir, Timeout: patience}
	if json {
		return c.CallRaw(ctx, http.MethodGet, Path, "application/json", nil)
	}
	return c.CallRaw(ctx, http.MethodGet, Path+"?width="+strconv.Itoa(width), "text/plain", nil)
}
