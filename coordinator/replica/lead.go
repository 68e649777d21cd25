package replica

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// ErrLost says that this replica does not lead any more.
var ErrLost = errors.New("this replica does not lead any more")

// Lead is the lead of a cluster, until it is lost.
type Lead struct {
	r       *Replica
	began   time.Time
	founded bool
	ctx     context.Context // ends with the lead
	end     context.CancelCauseFunc

	// files is for who looks at the folder and puts its pieces.
	files  gate
	made   bool         // the folder is what the cluster keeps, so that its changes may be committed
	kept   map[Sum]bool // pieces that the store has, and the head names
	ready  map[Sum]bool // those that it has, too, and the head does not name yet
	listed []Sum        // the list of files that the head names, in pieces

	// heads is for who replaces the head.
	heads    gate
	revision uint64
	count    uint64 // of the heads that were to be put

	mu    sync.Mutex
	head  Head
	until time.Time // it leads, if it has not lost the lead
	quiet bool      // it gives the lead away: another one may have it at any moment
	lost  error
}

func newLead(ctx context.Context, r *Replica, head Head, revision uint64, began time.Time) *Lead {
	l := &Lead{r: r, head: head, revision: revision, count: head.Count, began: began, until: began.Add(holdsFor),
		founded: len(head.Files) == 0, kept: map[Sum]bool{}, ready: map[Sum]bool{}}
	l.ctx, l.end = context.WithCancelCause(ctx)
	return l
}

// begin has the folder hold what the cluster keeps, or the other way round where the cluster is empty. From now on the
// lease is renewed until the context of Stand ends.
func (l *Lead) begin() error {
	l.r.cfg.Runtime.Go(l.renew)
	if err := l.files.enter(l.ctx, l.r.cfg.Runtime); err != nil {
		return err
	}
	defer l.files.leave()
	var err error
	if l.founded {
		l.made = true
		err = l.commit(l.ctx, 0, true)
	} else {
		err = l.take(l.ctx)
		l.made = err == nil
	}
	if err == nil {
		l.r.observe(Leads{Epoch: l.Epoch(), Founded: l.founded, Took: l.r.now().Sub(l.began)})
	}
	return err
}

// Context ends with the lead, and with the context that Stand was given. Its cause wraps ErrLost if the lead is lost.
func (l *Lead) Context() context.Context { return l.ctx }

// Epoch is that in which the leader announces, at least.
func (l *Lead) Epoch() wire.Epoch {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.head.Epoch
}

// Holds reports whether this replica may speak to devices now: it looks at the clock. Ask before each message.
func (l *Lead) Holds() bool {
	l.mu.Lock()
	quiet := l.quiet
	l.mu.Unlock()
	return !quiet && l.over() == nil
}

func (l *Lead) setQuiet(quiet bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.quiet = quiet
}

// Guard returns a session over which this coordinator speaks only while it leads, whenever it may have been stopped.
func (l *Lead) Guard(conn mqtt.Conn) mqtt.Conn { return guarded{conn, l} }

type guarded struct {
	mqtt.Conn
	lead *Lead
}

// Publish implements mqtt.Conn.
func (g guarded) Publish(m mqtt.Message) error {
	if !g.lead.Holds() {
		return mqtt.ErrDown
	}
	return g.Conn.Publish(m)
}

// renew commits what has changed, and replaces the head in any case.
func (l *Lead) renew() {
	for l.r.pause(l.ctx, renewEvery) == nil {
		if l.files.tryEnter(l.r.cfg.Runtime) {
			var err error
			if l.made {
				err = l.commit(l.ctx, 0, false)
			}
			l.files.leave()
			if l.ctx.Err() == nil { // else it is no fault of the folder's
				l.r.called("commit the state folder", err)
			}
		}
		_ = l.replace(l.ctx, func(*Head) {}) // told where it is lost
	}
}

// lose ends the lead, unless it is over.
func (l *Lead) lose(why error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost == nil {
		l.lost = fmt.Errorf("%w: %w", ErrLost, why)
		l.end(l.lost)
		l.r.observe(Lost{l.lost})
	}
	return l.lost
}

// over returns why the lead is over, or nil.
func (l *Lead) over() error {
	l.mu.Lock()
	lost, until := l.lost, l.until
	l.mu.Unlock()
	if lost == nil && !l.r.now().Before(until) {
		return l.lose(fmt.Errorf("the cluster has taken nothing for %s", holdsFor))
	}
	return lost
}

// replace changes the head. The error is that of ctx, or wraps ErrLost.
func (l *Lead) replace(ctx context.Context, change func(*Head)) error {
	if err := l.heads.enter(ctx, l.r.cfg.Runtime); err != nil {
		return err
	}
	defer l.heads.leave()
	l.mu.Lock()
	next := l.head
	l.mu.Unlock()
	change(&next)
	l.count++ // also where it stays unknown whether the one before was put
	next.Count = l.count
	value, err := next.encode()
	if err != nil {
		return err
	}
	began := l.r.now()
	revision, err := l.putHead(ctx, &next, value)
	if err != nil {
		return err
	}
	l.revision = revision
	l.mu.Lock()
	l.head, l.until, l.quiet = next, began.Add(holdsFor), next.Leader == ""
	l.mu.Unlock()
	l.r.observe(Renewed{began.Add(holdsFor)})
	return nil
}

// putHead puts the head in the place of the one that this leader has put before, until that is done or the lead is
// over. An answer may be lost: then the head tells by whom it is.
func (l *Lead) putHead(ctx context.Context, next *Head, value []byte) (revision uint64, err error) {
	err = l.persist(ctx, "renew the lease", func() (err error) {
		if revision, err = l.r.put(ctx, headKey, value, l.revision); !errors.Is(err, ErrConflict) {
			return err
		}
		is, found, failed := l.r.get(ctx, headKey)
		if failed != nil {
			return failed
		}
		h, failed := decodeHead(is)
		switch {
		case failed != nil:
			return failed
		case h.Instance == next.Instance && h.Count == next.Count:
			revision = found
			return nil
		case h.Instance == next.Instance: // an own one that was not known to be put
			l.revision = max(l.revision, found)
			return errAgain
		case found > l.revision:
			return l.lose(fmt.Errorf("%q leads now, in epoch %d", h.Leader, h.Epoch))
		}
		return err // an old one was read
	})
	return revision, err
}

// errAgain has persist try at once, and tell nobody.
var errAgain = errors.New("again")

// persist tries something until it is done or the lead is over.
func (l *Lead) persist(ctx context.Context, what string, do func() error) error {
	for {
		if err := l.over(); err != nil {
			return err
		}
		err := do()
		switch {
		case errors.Is(err, errAgain):
			continue
		case err != nil && ctx.Err() != nil: // no fault of the store's
			return errors.Join(context.Cause(ctx), err)
		}
		if l.r.called(what, err); err == nil {
			return nil
		}
		if stopped := l.r.pause(ctx, again); stopped != nil {
			return errors.Join(stopped, err)
		}
	}
}

// StepDown has another replica lead at once, after a last commit, and says why. With an error this one leads on, until
// its lease is over.
func (l *Lead) StepDown(ctx context.Context, why error) error {
	if err := l.files.enter(ctx, l.r.cfg.Runtime); err != nil {
		return err
	}
	defer l.files.leave()
	var err error
	if l.made {
		err = l.commit(ctx, 0, false)
	}
	if err == nil {
		l.setQuiet(true) // before the head may be put
		err = l.replace(ctx, func(h *Head) { h.Leader = "" })
	}
	if err == nil {
		_ = l.lose(why)
	}
	return err
}
