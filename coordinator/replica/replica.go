package replica

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/observe"
)

// The times of the lease.
const (
	// TTL is how long the head must stand unchanged before the leader counts as gone.
	TTL = 15 * time.Second
	// renewEvery is how often the leader replaces the head, if no commit does.
	renewEvery = 2500 * time.Millisecond
	// leaseDuration is how long a leader goes on after it has begun to replace the head for the last time.
	leaseDuration = 10 * time.Second
	// lookEvery is how often who stands by reads the head.
	lookEvery = time.Second
	// storeCallTimeout bounds a call of the store, and again is the pause before it is tried once more.
	storeCallTimeout = 2 * time.Second
	storeRetryDelay  = 200 * time.Millisecond
)

// Config is what a replica needs.
type Config struct {
	Store    KeyValueStore
	Folder   ReplicatedFolder
	Name     string // of this replica, unlike that of any other
	Instance uint64 // drawn at random for this process
	Runtime  host.JobRuntime
	Observer observe.Observer
}

// Replica is one of several coordinators that keep one state folder.
type Replica struct {
	cfg Config

	mu             sync.Mutex
	storeFailing   bool // the store
	leaderReported bool // whom it stands by for was told
	reportedLeader string

	// seenStateRevision is the head's revision as it was read last, and since the time from which on it has not
	// changed.
	seenStateRevision   uint64
	stateUnchangedSince time.Time
}

// CurrentLeader returns the name of the replica that leads, empty if none does, and whether it has renewed its lease
// while this was looked at, which takes as long as two renewals at most. The error wraps ErrNone in an empty cluster.
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

// New makes a replica.
func New(cfg Config) *Replica { return &Replica{cfg: cfg} }

// AwaitLeadership stands by until this replica leads, and has the folder hold then what the cluster keeps. An empty
// cluster is founded with the folder as it is. The error is that of ctx, or that the folder cannot be made so; then
// another replica may lead.
func (r *Replica) AwaitLeadership(ctx context.Context) (*Leadership, error) {
	for {
		lead, err := r.tryToLead(ctx)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		r.reportStoreCall("read who leads", err)
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

// tryToLead takes the lead if nobody has it.
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
	case revision < r.seenStateRevision: // an old one was read
		return nil, nil
	case h.Leader == "", h.Instance == r.cfg.Instance,
		now.Sub(r.stateUnchangedSince) >= TTL: // an own one: its answer was lost
		return r.takeLeadership(ctx, began, h, revision)
	}
	r.reportStandingBy(h.Leader)
	return nil, nil
}

// takeLeadership puts the head in which this replica leads in the place of one.
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
	if errors.Is(err, ErrConflict) { // another was faster
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return newLeadership(ctx, r, next, put, began), nil
}

func (r *Replica) now() time.Time { return r.cfg.Runtime.Now() }

// getFromStore is Store.Get, within its time.
func (r *Replica) getFromStore(ctx context.Context, key string) ([]byte, uint64, error) {
	ctx, cancel := r.cfg.Runtime.WithDeadline(ctx, r.now().Add(storeCallTimeout))
	defer cancel()
	return r.cfg.Store.Get(ctx, key)
}

// putInStore is Store.Put, within its time.
func (r *Replica) putInStore(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	ctx, cancel := r.cfg.Runtime.WithDeadline(ctx, r.now().Add(storeCallTimeout))
	defer cancel()
	return r.cfg.Store.Put(ctx, key, value, revision)
}

// remove is Store.Remove, within its time.
func (r *Replica) removeFromStore(ctx context.Context, key string) error {
	ctx, cancel := r.cfg.Runtime.WithDeadline(ctx, r.now().Add(storeCallTimeout))
	defer cancel()
	return r.cfg.Store.Remove(ctx, key)
}

// pause waits. The error is that of ctx.
func (r *Replica) pause(ctx context.Context, d time.Duration) error {
	waiter := r.cfg.Runtime.NewWaiter()
	for until := r.now().Add(d); r.now().Before(until) && ctx.Err() == nil; {
		waiter.Wait(ctx, until, nil)
	}
	return context.Cause(ctx)
}

func (r *Replica) observe(f observe.Event) { r.cfg.Observer.Observe(f) }

// reportStandingBy tells who leads, when that changes.
func (r *Replica) reportStandingBy(leader string) {
	if !r.leaderReported || leader != r.reportedLeader {
		r.leaderReported, r.reportedLeader = true, leader
		r.observe(StandingBy{leader})
	}
}

// reportStoreCall takes the result of a call of the store, and tells when it begins to fail and when it is well again.
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
