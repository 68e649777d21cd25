package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fedmesh/fedmesh/internal/logging"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/mqtt"
)

// Logger returns the process's logger. A later change of level, if it is not nil, changes the log's level.
func Logger(w io.Writer, l settings.Log, level *slog.LevelVar) (*slog.Logger, error) {
	return logging.New(w, logging.Options{Level: l.Level, AdjustableLevel: level, Format: l.Format,
		Journal: logging.IsJournalStream(w)})
}

// Serve serves the process's metrics until ctx ends; for an empty address it returns a nil Server.
func Serve(ctx context.Context, listen string, h http.Handler, log *slog.Logger) (*metrics.Server, error) {
	if listen == "" {
		return nil, nil
	}
	s, err := metrics.Listen(listen, h)
	if err != nil {
		return nil, err
	}
	log.Info("serving metrics", "url", s.URL())
	context.AfterFunc(ctx, func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = s.Close(closing) // the process is about to end
	})
	return s, nil
}

// AlwaysReady is the readiness of a process that is always ready.
func AlwaysReady() error { return nil }

// Readiness is the answer of /-/ready. A daemon is ready once its state is open, as long as its state folder can be
// written and the broker refuses none of its subscriptions. An agent also has to accept the coordinator's
// announcements.
type Readiness struct {
	open                atomic.Bool
	storageError        atomic.Pointer[error]    // of the state folder; nil while it can be written
	refusedFilters      atomic.Pointer[[]string] // filters; nil before the first refusal
	missingAnnouncement atomic.Pointer[string]   // why an agent has no announcement; nil while it has one
	standbyLeader       atomic.Pointer[string]   // the coordinator that it stands by for; nil while it does not
}

// UnknownLeader stands for the name of a coordinator that leads, if it is not known.
const UnknownLeader = "nobody that is known"

// SetStateOpened notes that the state is open.
func (r *Readiness) SetStateOpened() { r.open.Store(true) }

// Err returns why the daemon is not ready, or nil.
func (r *Readiness) Err() error {
	if leader := r.standbyLeader.Load(); leader != nil {
		return fmt.Errorf("it stands by: %s leads", cmp.Or(*leader, UnknownLeader))
	}
	if !r.open.Load() {
		return errors.New("the state folder is being opened")
	}
	if err := r.storageError.Load(); err != nil {
		return *err
	}
	if refused := r.refusedFilters.Load(); refused != nil && len(*refused) > 0 {
		return fmt.Errorf("the broker refuses %s: %s", strings.Join(*refused, " and "), mqtt.RefusalCauses)
	}
	if why := r.missingAnnouncement.Load(); why != nil {
		return errors.New(*why)
	}
	return nil
}

// AllReady returns what says why one of several is not ready.
func AllReady(all []Readiness) func() error {
	return func() error {
		for i := range all {
			if err := all[i].Err(); err != nil {
				return err
			}
		}
		return nil
	}
}

// SetStorageFailing notes that a write to the state folder failed.
func (r *Readiness) SetStorageFailing(what string, err error) {
	err = fmt.Errorf("cannot %s: %w", what, err)
	r.storageError.Store(&err)
}

// ClearStorageFailing notes that the state folder can be written again.
func (r *Readiness) ClearStorageFailing() { r.storageError.Store(nil) }

// SetRefusedFilters notes the subscriptions that the broker refuses; none = it accepts all of them.
func (r *Readiness) SetRefusedFilters(filters []string) { r.refusedFilters.Store(&filters) }

// SetMissingAnnouncement notes why an agent has no announcement; "" = it has one.
func (r *Readiness) SetMissingAnnouncement(why string) {
	if why == "" {
		r.missingAnnouncement.Store(nil)
		return
	}
	r.missingAnnouncement.Store(&why)
}

// SetStandby notes that the coordinator stands by for the one with this name, which may be empty if it is not known.
func (r *Readiness) SetStandby(leader string) { r.standbyLeader.Store(&leader) }

// SetLeading notes that the coordinator does not stand by.
func (r *Readiness) SetLeading() { r.standbyLeader.Store(nil) }
