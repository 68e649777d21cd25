package status

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/fedmesh/fedmesh/internal/api"
)

// fetchTimeout is how long a daemon has for its picture.
const fetchTimeout = 5 * time.Second

// Path is where a daemon answers with its picture.
const Path = "/v1/status"

// DrawableStatus is the state that a daemon shows. It is also encoded as JSON.
type DrawableStatus interface {
	// Draw returns the picture as text, no line wider than width.
	Draw(width int) string
}

// fetchStatus asks the daemon with this state folder for its picture: as JSON, or as text of a width.
func fetchStatus(ctx context.Context, program, dir string, json bool, width int, patience time.Duration) ([]byte,
	error) {
	c := api.Client{Program: program, Dir: dir, Timeout: patience}
	if json {
		return c.CallRaw(ctx, http.MethodGet, Path, "application/json", nil)
	}
	return c.CallRaw(ctx, http.MethodGet, Path+"?width="+strconv.Itoa(width), "text/plain", nil)
}
