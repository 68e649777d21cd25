package status

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/fedmesh/fedmesh/internal/api"
)

// patience is how long a daemon has for its picture.
const patience = 5 * time.Second

// path is where a daemon answers with its picture.
const path = "/v1/status"

// Picture is the state that a daemon shows. It is also encoded as JSON.
type Picture interface {
	// Draw returns the picture as text, no line wider than width.
	Draw(width int) string
}

// Route answers with the picture.
func (v *AgentView) Route() api.Route {
	return api.Get(path, "What the agent does.", func(*http.Request) (*agentPicture, error) {
		return v.Picture().(*agentPicture), nil
	})
}

// Route answers with the picture.
func (v *CoordinatorView) Route() api.Route {
	return api.Get(path, "What the coordinator and its federation do.",
		func(*http.Request) (*coordinatorPicture, error) { return v.Picture().(*coordinatorPicture), nil })
}

// fetch asks the daemon with this state folder for its picture: as JSON, or as text of a width.
func fetch(ctx context.Context, program, dir string, json bool, width int, patience time.Duration) ([]byte, error) {
	c := api.Client{Program: program, Dir: dir, Patience: patience}
	if json {
		return c.Raw(ctx, http.MethodGet, path, "application/json", nil)
	}
	return c.Raw(ctx, http.MethodGet, path+"?width="+strconv.Itoa(width), "text/plain", nil)
}
