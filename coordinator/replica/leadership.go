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

// ErrLost means that this replica no longer leads.
var ErrLost = errors.New("this replica is no longer the leader")

// Leadership represents a replica's time as leader of the cluster.
type Leadership struct {
	replica          *Replica
	takeoverBeganAt  time.Time
	foundsCluster    bool
	ctx              context.Context // context that ends with the leadership
	cancelLeadership context.CancelCauseFunc

	// folderLock serialises reading the folder and uploading its pieces.
	folderLock       fairLock
	folderIsCurrent  bool               // true if the folder matches the cluster's state and may be committed
	referencedPieces map[PieceHash]bool // stored pieces to which the cluster state refers
	preparedPieces   map[PieceHash]bool // stored pieces to which the cluster state does not refer yet
	fileListPieces   []PieceHash        // pieces of the file list to which the cluster state refers

	// clusterStateLock serialises writes of the cluster state.
	clusterStateLock     fairLock
	clusterStateRevision uint64
	clusterStatePutCount uint64 // number of attempts to write the cluster state

	mu                  sync.Mutex
	lastPutClusterState ClusterState
	leaseEndsAt         time.Time // time at which the lease of the leader expires
	steppingDown        bool      // true while leadership is handed over; another replica may lead at any time
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

// beginLeading starts to renew the lease. It then replaces the contents of the folder with the cluster's state. If the
// cluster is empty, it commits the folder instead.
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

// Context returns a context that ends with the leadership or with the context of AwaitLeadership. Its cause wraps
// ErrLost if leadership was lost.
func (l *Leadership) Context() context.Context { return l.ctx }

// Epoch returns the minimum epoch of the leader's announcements.
func (l *Leadership) Epoch() wire.Epoch {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastPutClusterState.Epoch
}

// MayPublish reports whether this replica may send messages to devices now. It reads the clock, so it must be called
// before each message.
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

// LeaderOnlyConn returns a connection that publishes messages only while this replica leads, even if the process was
// suspended for a while.
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

// renewLease renews the lease and commits the folder if it has changed, periodically until the leadership ends.
func (l *Leadership) renewLease() {
	for l.replica.pause(l.ctx, renewEvery) == nil {
		if l.folderLock.tryLock(l.replica.cfg.Runtime) {
			var err error
			if l.folderIsCurrent {
				err = l.commitFolder(l.ctx, 0, false)
			}
			l.folderLock.unlock()
			if l.ctx.Err() == nil { // Otherwise the error is due to the end of the leadership.
				l.replica.reportStoreCall("commit changes of the state folder to the state store", err)
			}
		}
		// Ignore the error, which endLeadership has reported.
		_ = l.replaceClusterState(l.ctx, func(*ClusterState) {})
	}
}

// endLeadership ends the leadership with the given reason. It returns the reason of the first call.
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

// endedError returns the reason why the leadership ended, or nil. It ends the leadership if the lease has expired.
func (l *Leadership) endedError() error {
	l.mu.Lock()
	lost, until := l.lossCause, l.leaseEndsAt
	l.mu.Unlock()
	if lost == nil && !l.replica.now().Before(until) {
		return l.endLeadership(fmt.Errorf("no write to the state store has succeeded for %s", leaseDuration))
	}
	return lost
}

// replaceClusterState changes the cluster state and writes it to the store. It returns the cause of ctx or an error
// that wraps ErrLost.
func (l *Leadership) replaceClusterState(ctx context.Context, change func(*ClusterState)) error {
	if err := l.clusterStateLock.lock(ctx, l.replica.cfg.Runtime); err != nil {
		return err
	}
	defer l.clusterStateLock.unlock()
	l.mu.Lock()
	next := l.lastPutClusterState
	l.mu.Unlock()
	change(&next)
	l.clusterStatePutCount++ // The number is new even if the result of the previous write is unknown.
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

// putClusterState replaces this leader's previous cluster state in the store with next. It retries until it succeeds or
// the leadership ends. If the answer to a write was lost, it recognises its own write by Instance and PutCount.
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
		case h.Instance == next.Instance: // the leader's own write, whose answer was lost
			l.clusterStateRevision = max(l.clusterStateRevision, found)
			return errAgain
		case found > l.clusterStateRevision:
			return l.endLeadership(fmt.Errorf("%q is now the leader, in epoch %d", h.Leader, h.Epoch))
		}
		return err // the read returned an outdated value
	})
	return revision, err
}

// errAgain makes retryStoreOperation call the operation again at once, without a report.
var errAgain = errors.New("again")

// retryStoreOperation calls do until it succeeds, ctx ends or the leadership ends.
func (l *Leadership) retryStoreOperation(ctx context.Context, what string, do func() error) error {
	for {
		if err := l.endedError(); err != nil {
			return err
		}
		err := do()
		switch {
		case errors.Is(err, errAgain):
			continue
		case err != nil && ctx.Err() != nil: // the context has ended, so the store is not at fault
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

// StepDown commits the folder and then gives up leadership with the given reason, so that another replica can lead at
// once. After an error this replica still leads until its lease expires.
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
		l.setSteppingDown(true) // MayPublish must return false before the cluster state is written.
		err = l.replaceClusterState(ctx, func(h *ClusterState) { h.Leader = "" })
	}
	if err == nil {
		_ = l.endLeadership(why)
	}
	return err
}
