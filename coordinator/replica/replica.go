package replica

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/observe"
)

// Intervals and time limits of the lease.
const (
	// TTL is the time without a change of the cluster state after which the leader is considered to have failed.
	TTL = 15 * time.Second
	// renewEvery is the interval at which the leader renews its lease by writing the cluster state.
	renewEvery = 2500 * time.Millisecond
	// leaseDuration is the validity of the lease, counted from the start of the leader's last successful write of the
	// cluster state.
	leaseDuration = 10 * time.Second
	// lookEvery is the interval at which a waiting replica reads the cluster state.
	lookEvery = time.Second
	// storeCallTimeout is the timeout of a call of the store, and storeRetryDelay the delay before a retry.
	storeCallTimeout = 2 * time.Second
	storeRetryDelay  = 200 * time.Millisecond
)

// Config configures a Replica.
type Config struct {
	Store    KeyValueStore
	Folder   ReplicatedFolder
	Name     string // unique name of this replica
	Instance uint64 // random number that identifies this process
	Runtime  host.JobRuntime
	Observer observe.Observer
}

// Replica is one of several coordinators that share a replicated state folder.
type Replica struct {
	cfg Config

	mu             sync.Mutex
	storeFailing   bool // true if the last call of the store failed
	leaderReported bool // true once StandingBy was reported
	reportedLeader string

	// seenStateRevision is the newest known revision of the cluster state, which this replica first read at
	// stateUnchangedSince.
	seenStateRevision   uint64
	stateUnchangedSince time.Time
}

// CurrentLeader returns the name of the leading replica, or "" if no replica leads. It waits up to two renewal
// intervals; lives is true if the leader renews its lease within this time. The error wraps ErrNone if the cluster is
// empty.
func CurrentLeader(ctx context.Context, s KeyValueStore, rt host.JobRuntime) (name string, lives bool, err error) {
	r := New(Config{Store: s, Runtime: rt})
	first := uint64(0)
	for until := r.now().Add(2 * renewEvery); ; {
		value, revision, err := r.getFromStore(ctx, headKey)
		h := &ClusterState{}
		if err == nil {
			h, err = decodeClusterState(value)
		}
		switch {
		case err != nil, h.Leader == "":
			return "", false, err
		case first != 0 && revision > first:
			return h.Leader, true, nil
		case !r.now().Before(until):
			return h.Leader, false, nil
		}
		first = revision
		if err := r.pause(ctx, storeRetryDelay); err != nil {
			return "", false, err
		}
	}
}

// New returns a Replica. It starts in standby.
func New(cfg Config) *Replica { return &Replica{cfg: cfg} }

// AwaitLeadership waits until this replica leads, and then replaces the contents of the folder with the cluster's
// state. An empty cluster is initialised with the folder. The error is the cause of ctx, or reports that the folder
// cannot be restored; another replica may then lead.
func (r *Replica) AwaitLeadership(ctx context.Context) (*Leadership, error) {
	for {
		lead, err := r.tryToLead(ctx)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		r.reportStoreCall("read the current leader from the state store", err)
		if lead != nil {
			if err = lead.beginLeading(); err == nil {
				return lead, nil
			}
			left := lead.StepDown(ctx, err)
			if !errors.Is(err, ErrLost) {
				return nil, errors.Join(err, left)
			}
		}
		if err := r.pause(ctx, lookEvery); err != nil {
			return nil, err
		}
	}
}

// tryToLead takes the leadership if no other replica holds it. Otherwise it returns nil.
func (r *Replica) tryToLead(ctx context.Context) (*Leadership, error) {
	began := r.now()
	value, revision, err := r.getFromStore(ctx, headKey)
	h := &ClusterState{}
	switch {
	case errors.Is(err, ErrNone) && r.seenStateRevision == 0:
		return r.takeLeadership(ctx, began, h, 0)
	case err != nil:
		return nil, err
	}
	if h, err = decodeClusterState(value); err != nil {
		return nil, err
	}
	now := r.now()
	if revision > r.seenStateRevision {
		r.seenStateRevision, r.stateUnchangedSince = revision, now
	}
	switch {
	case revision < r.seenStateRevision: // the read returned an outdated value
		return nil, nil
	case h.Leader == "", h.Instance == r.cfg.Instance,
		now.Sub(r.stateUnchangedSince) >= TTL: // an equal Instance is this process's own write, whose answer was lost
		return r.takeLeadership(ctx, began, h, revision)
	}
	r.reportStandingBy(h.Leader)
	return nil, nil
}

// takeLeadership replaces the given cluster state before with a cluster state in which this replica is the leader.
func (r *Replica) takeLeadership(ctx context.Context, began time.Time, before *ClusterState,
	revision uint64) (*Leadership, error) {
	next := *before
	next.Leader, next.Instance, next.PutCount, next.Epoch = r.cfg.Name, r.cfg.Instance, before.PutCount+1,
		before.Epoch+1
	value, err := next.encode()
	if err != nil {
		return nil, err
	}
	put, err := r.putInStore(ctx, headKey, value, revision)
	if errors.Is(err, ErrConflict) { // another replica was faster
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return newLeadership(ctx, r, next, put, began), nil
}

func (r *Replica) now() time.Time { return r.cfg.Runtime.Now() }

// getFromStore calls Store.Get with a timeout.
func (r *Replica) getFromStore(ctx context.Context, key string) ([]byte, uint64, error) {
	ctx, cancel := r.cfg.Runtime.WithDeadline(ctx, r.now().Add(storeCallTimeout))
	defer cancel()
	return r.cfg.Store.Get(ctx, key)
}

// putInStore calls Store.Put with a timeout.
func (r *Replica) putInStore(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	ctx, cancel := r.cfg.Runtime.WithDeadline(ctx, r.now().Add(storeCallTimeout))
	defer cancel()
	return r.cfg.Store.Put(ctx, key, value, revision)
}

// removeFromStore calls Store.Remove with a timeout.
func (r *Replica) removeFromStore(ctx context.Context, key string) error {
	ctx, cancel := r.cfg.Runtime.WithDeadline(ctx, r.now().Add(storeCallTimeout))
	defer cancel()
	return r.cfg.Store.Remove(ctx, key)
}

// pause waits for d. If ctx ends first, it returns the cause of ctx.
func (r *Replica) pause(ctx context.Context, d time.Duration) error {
	waiter := r.cfg.Runtime.NewWaiter()
	for until := r.now().Add(d); r.now().Before(until) && ctx.Err() == nil; {
		waiter.Wait(ctx, until, nil)
	}
	return context.Cause(ctx)
}

func (r *Replica) observe(f observe.Event) { r.cfg.Observer.Observe(f) }

// reportStandingBy reports the leader if it has changed.
func (r *Replica) reportStandingBy(leader string) {
	if !r.leaderReported || leader != r.reportedLeader {
		r.leaderReported, r.reportedLeader = true, leader
		r.observe(StandingBy{leader})
	}
}

// reportStoreCall records the result of a call of the store. It reports when calls begin to fail and when they succeed
// again.
func (r *Replica) reportStoreCall(what string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch failing := err != nil; {
	case failing && !r.storeFailing:
		r.observe(StoreFailing{what, err})
	case !failing && r.storeFailing:
		r.observe(StoreRecovered{})
	}
	r.storeFailing = err != nil
}
