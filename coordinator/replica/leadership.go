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

// Leadership is the lead of a cluster, until it is lost.
type Leadership struct {
	replica          *Replica
	takeoverBeganAt  time.Time
	foundsCluster    bool
	ctx              context.Context // ends with the lead
	cancelLeadership context.CancelCauseFunc

	// folderLock is for who looks at the folder and puts its pieces.
	folderLock       fairLock
	folderIsCurrent  bool               // the folder is what the cluster keeps, so that its changes may be committed
	referencedPieces map[PieceHash]bool // pieces that the store has, and the head names
	preparedPieces   map[PieceHash]bool // those that it has, too, and the head does not name yet
	fileListPieces   []PieceHash        // the list of files that the head names, in pieces

	// clusterStateLock is for who replaces the head.
	clusterStateLock     fairLock
	clusterStateRevision uint64
	clusterStatePutCount uint64 // of the heads that were to be put

	mu                  sync.Mutex
	lastPutClusterState ClusterState
	leaseEndsAt         time.Time // it leads, if it has not lost the lead
	steppingDown        bool      // it gives the lead away: another one may have it at any moment
	lossCause           error
}

func newLeadership(ctx context.Context, r *Replica, head ClusterState, revision uint64, began time.Time) *Leadership {
	l := &Leadership{replica: r, lastPutClusterState: head, clusterStateRevision: revision,
		clusterStatePutCount: head.PutCount, takeoverBeganAt: began,
		leaseEndsAt:   began.Add(leaseDuration),
		foundsCluster: len(head.FileListPieces) == 0, referencedPieces: map[PieceHash]bool{},
		preparedPieces: map[PieceHash]bool{}}
	l.ctx, l.cancelLeadership = context.WithCancelCause(ctx)
	return l
}

// beginLeading has the folder hold what the cluster keeps, or the other way round where the cluster is empty. From now
// on the lease is renewed until the context of Stand ends.
func (l *Leadership) beginLeading() error {
	l.replica.cfg.Runtime.Go(l.renewLease)
	if err := l.folderLock.lock(l.ctx, l.replica.cfg.Runtime); err != nil {
		return err
	}
	defer l.folderLock.unlock()
	var err error
	if l.foundsCluster {
		l.folderIsCurrent = true
		err = l.commitFolder(l.ctx, 0, true)
	} else {
		err = l.restoreFolder(l.ctx)
		l.folderIsCurrent = err == nil
	}
	if err == nil {
		l.replica.observe(LeadershipGained{Epoch: l.Epoch(), ClusterFounded: l.foundsCluster,
			TakeoverDuration: l.replica.now().Sub(l.takeoverBeganAt)})
	}
	return err
}

// Context ends with the lead, and with the context that Stand was given. Its cause wraps ErrLost if the lead is lost.
func (l *Leadership) Context() context.Context { return l.ctx }

// Epoch is that in which the leader announces, at least.
func (l *Leadership) Epoch() wire.Epoch {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastPutClusterState.Epoch
}

// MayPublish reports whether this replica may speak to devices now: it looks at the clock. Ask before each message.
func (l *Leadership) MayPublish() bool {
	l.mu.Lock()
	quiet := l.steppingDown
	l.mu.Unlock()
	return !quiet && l.endedError() == nil
}

func (l *Leadership) setSteppingDown(quiet bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.steppingDown = quiet
}

// LeaderOnlyConn returns a session over which this coordinator speaks only while it leads, whenever it may have been
// stopped.
func (l *Leadership) LeaderOnlyConn(conn mqtt.Conn) mqtt.Conn { return leaderOnlyConn{conn, l} }

type leaderOnlyConn struct {
	mqtt.Conn
	leadership *Leadership
}

// Publish implements mqtt.Conn.
func (g leaderOnlyConn) Publish(m mqtt.Message) error {
	if !g.leadership.MayPublish() {
		return mqtt.ErrDown
	}
	return g.Conn.Publish(m)
}

// renewLease commits what has changed, and replaces the head in any case.
func (l *Leadership) renewLease() {
	for l.replica.pause(l.ctx, renewEvery) == nil {
		if l.folderLock.tryLock(l.replica.cfg.Runtime) {
			var err error
			if l.folderIsCurrent {
				err = l.commitFolder(l.ctx, 0, false)
			}
			l.folderLock.unlock()
			if l.ctx.Err() == nil { // else it is no fault of the folder's
				l.replica.reportStoreCall("commit the state folder", err)
			}
		}
		_ = l.replaceClusterState(l.ctx, func(*ClusterState) {}) // told where it is lost
	}
}

// endLeadership ends the lead, unless it is over.
func (l *Leadership) endLeadership(why error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lossCause == nil {
		l.lossCause = fmt.Errorf("%w: %w", ErrLost, why)
		l.cancelLeadership(l.lossCause)
		l.replica.observe(LeadershipLost{l.lossCause})
	}
	return l.lossCause
}

// endedError returns why the lead is over, or nil.
func (l *Leadership) endedError() error {
	l.mu.Lock()
	lost, until := l.lossCause, l.leaseEndsAt
	l.mu.Unlock()
	if lost == nil && !l.replica.now().Before(until) {
		return l.endLeadership(fmt.Errorf("the cluster has taken nothing for %s", leaseDuration))
	}
	return lost
}

// replaceClusterState changes the head. The error is that of ctx, or wraps ErrLost.
func (l *Leadership) replaceClusterState(ctx context.Context, change func(*ClusterState)) error {
	if err := l.clusterStateLock.lock(ctx, l.replica.cfg.Runtime); err != nil {
		return err
	}
	defer l.clusterStateLock.unlock()
	l.mu.Lock()
	next := l.lastPutClusterState
	l.mu.Unlock()
	change(&next)
	l.clusterStatePutCount++ // also where it stays unknown whether the one before was put
	next.PutCount = l.clusterStatePutCount
	value, err := next.encode()
	if err != nil {
		return err
	}
	began := l.replica.now()
	revision, err := l.putClusterState(ctx, &next, value)
	if err != nil {
		return err
	}
	l.clusterStateRevision = revision
	l.mu.Lock()
	l.lastPutClusterState, l.leaseEndsAt, l.steppingDown = next, began.Add(leaseDuration), next.Leader == ""
	l.mu.Unlock()
	l.replica.observe(LeaseRenewed{began.Add(leaseDuration)})
	return nil
}

// putClusterState puts the head in the place of the one that this leader has put before, until that is done or the lead
// is over. An answer may be lost: then the head tells by whom it is.
func (l *Leadership) putClusterState(ctx context.Context, next *ClusterState, value []byte) (revision uint64,
	err error) {
	err = l.retryStoreOperation(ctx, "renew the lease", func() (err error) {
		if revision, err = l.replica.putInStore(ctx, headKey, value, l.clusterStateRevision); !errors.Is(err,
			ErrConflict) {
			return err
		}
		is, found, failed := l.replica.getFromStore(ctx, headKey)
		if failed != nil {
			return failed
		}
		h, failed := decodeClusterState(is)
		switch {
		case failed != nil:
			return failed
		case h.Instance == next.Instance && h.PutCount == next.PutCount:
			revision = found
			return nil
		case h.Instance == next.Instance: // an own one that was not known to be put
			l.clusterStateRevision = max(l.clusterStateRevision, found)
			return errAgain
		case found > l.clusterStateRevision:
			return l.endLeadership(fmt.Errorf("%q leads now, in epoch %d", h.Leader, h.Epoch))
		}
		return err // an old one was read
	})
	return revision, err
}

// errAgain has persist try at once, and tell nobody.
var errAgain = errors.New("again")

// retryStoreOperation tries something until it is done or the lead is over.
func (l *Leadership) retryStoreOperation(ctx context.Context, what string, do func() error) error {
	for {
		if err := l.endedError(); err != nil {
			return err
		}
		err := do()
		switch {
		case errors.Is(err, errAgain):
			continue
		case err != nil && ctx.Err() != nil: // no fault of the store's
			return errors.Join(context.Cause(ctx), err)
		}
		if l.replica.reportStoreCall(what, err); err == nil {
			return nil
		}
		if stopped := l.replica.pause(ctx, storeRetryDelay); stopped != nil {
			return errors.Join(stopped, err)
		}
	}
}

// StepDown has another replica lead at once, after a last commit, and says why. With an error this one leads on, until
// its lease is over.
func (l *Leadership) StepDown(ctx context.Context, why error) error {
	if err := l.folderLock.lock(ctx, l.replica.cfg.Runtime); err != nil {
		return err
	}
	defer l.folderLock.unlock()
	var err error
	if l.folderIsCurrent {
		err = l.commitFolder(ctx, 0, false)
	}
	if err == nil {
		l.setSteppingDown(true) // before the head may be put
		err = l.replaceClusterState(ctx, func(h *ClusterState) { h.Leader = "" })
	}
	if err == nil {
		_ = l.endLeadership(why)
	}
	return err
}
