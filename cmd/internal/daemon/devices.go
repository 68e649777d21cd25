package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fedmesh/fedmesh/cmd/internal/api"
	"github.com/fedmesh/fedmesh/cmd/internal/status"
	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

const (
	devicesFile    = "devices" // in the state folder: when each device was seen, and its rounds
	devicesVersion = 2
	maxDevices     = 256 << 20 // bytes

	// devicesEvery is how often it is written, beside the rounds: a kill loses as much.
	devicesEvery = 10 * time.Minute
)

// devicesRoute is the list of the devices.
func (f *Federation) devicesRoute() api.Route {
	return api.Get("/v1/agents", "The enrolled devices.", func(r *http.Request) (*status.Devices, error) {
		enrolled, err := f.settings().AgentIDs()
		if err != nil {
			return nil, err
		}
		var states []string
		if s := r.FormValue("state"); s != "" {
			states = strings.Split(s, ",")
		}
		l, err := f.devices.List(enrolled, states, r.FormValue("sort"))
		if err != nil {
			return nil, api.Bad("%v", err)
		}
		return l, nil
	}, api.Parameter{Name: "state", About: "only devices in these states: " + strings.Join(status.DeviceStates, ", ")},
		api.Parameter{Name: "sort", About: "by " + strings.Join(status.DeviceOrders(), ", ") +
			"; with a leading - in the other direction"})
}

// Resetting is a request without a content, and its answer.
type (
	Resetting   struct{}
	DeviceReset struct {
		Agent string `json:"agent"`
	}
)

// resetRoute has the counter of a device's starts begin anew.
func (f *Federation) resetRoute() api.Route {
	return api.Post("/v1/devices/{id}/reset", "Hear a device whose state folder was lost, whatever it said before.",
		func(r *http.Request, _ Resetting) (DeviceReset, error) {
			id := wire.AgentID(r.PathValue("id"))
			ctx, cancel := context.WithTimeout(r.Context(), commandTime)
			defer cancel()
			c, err := f.present(ctx)
			if err == nil {
				err = c.Reset(ctx, id)
			}
			if errors.Is(err, coordinator.ErrUnlisted) {
				err = api.Missing("%v", err)
			}
			return DeviceReset{string(id)}, err
		})
}

// rememberDevices reads what earlier processes have known of the devices, and keeps it for later ones, until end is
// called: after the coordinator has told its last.
func (f *Federation) rememberDevices(ctx context.Context) (end func()) {
	f.recallDevices()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var keeping sync.WaitGroup
	keeping.Go(func() { f.keepDevices(ctx) })
	return func() {
		cancel()
		keeping.Wait()
	}
}

// recallDevices reads what is known of the devices from earlier processes. A damaged file costs only that.
func (f *Federation) recallDevices() {
	path := filepath.Join(f.dir, devicesFile)
	version, body, err := store.Machine.LoadRecord(path, maxDevices)
	switch {
	case errors.Is(err, store.ErrNoRecord):
		return
	case err == nil && version != devicesVersion:
		err = &store.VersionError{Path: path, Has: version, Want: devicesVersion}
	}
	if err == nil {
		enrolled, listed := f.settings().AgentIDs()
		if err = listed; err == nil {
			err = f.devices.Restore(body, enrolled)
		}
	}
	if err != nil {
		f.o.Logger.Warn("what earlier processes have known of the devices is lost: when they were seen, and their "+
			"rounds", "file", path, "err", err)
	}
}

// keepDevices writes what is known of the devices now and then, until ctx ends, and then once more.
func (f *Federation) keepDevices(ctx context.Context) {
	tick := time.NewTicker(devicesEvery)
	defer tick.Stop()
	for ending := false; !ending; {
		select {
		case <-ctx.Done():
			ending = true
		case <-tick.C:
		}
		body, changed := f.devices.Save()
		if !changed {
			continue
		}
		if err := store.Machine.SaveRecord(filepath.Join(f.dir, devicesFile), devicesVersion, body); err != nil {
			f.devices.Unsaved()
			f.o.Logger.Warn("cannot save when devices were seen", "err", fmt.Errorf("state folder: %w", err))
		}
	}
}
