package world

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/replica"
	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/internal/testkit/engine"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// The coordinator may have several machines. Its process runs on one of them at a time. When the process ends, it
// starts again on the next machine. There it finds the old disk of that machine, and loads the state from the
// replicated store.

// turn moves the coordinator to its next machine if it has several.
func (p *party) turn() {
	if len(p.others) > 0 {
		p.disk, p.others = p.others[0], append(p.others[1:], p.disk)
	}
}

// engineTime is the maximum delay before and after each operation of the replicated store.
const engineTime = 3 * time.Millisecond

var (
	errNoEngine = errors.New("the state store does not respond")
	errEnds     = errors.New("process is stopping")
)

// engine returns a client of the replicated store for the process. The process can be killed before or after each
// operation.
func (l *processLife) engine() replica.KeyValueStore {
	h := handle{l.p.disk, l}
	return engine.Store{FakeKVServer: l.w.engine, Intercept: func(ctx context.Context, op, key string,
		do func()) error {
		if l.w.engineDown > 0 {
			l.NewWaiter().Wait(ctx, l.Now().Add(time.Second), nil)
			return errNoEngine
		}
		h.op("engine "+op, key, time.Duration(l.w.rng.Int64N(int64(engineTime))))
		do()
		if op == "put" && key == "head" {
			l.w.check.commits(l.p)
		}
		h.op("engine "+op, key, time.Duration(l.w.rng.Int64N(int64(engineTime))))
		return nil
	}}
}

// replicaObserver writes the events of a replica to the transcript.
type replicaObserver struct{ l *processLife }

// Observe implements observe.Observer.
func (h replicaObserver) Observe(f observe.Event) {
	if _, often := f.(replica.LeaseRenewed); !often {
		h.l.w.note("%s: %T", h.l.p.id, f)
	}
}

// coordinateInTurn runs the coordinator's process on one of several machines, in the same way as package
// internal/coordinatord.
func (p *party) coordinateInTurn(ctx context.Context, l *processLife) error {
	r := replica.New(replica.Config{Store: l.engine(), Name: p.disk.name, Instance: p.rng.Uint64(),
		Runtime: l, Observer: replicaObserver{l},
		Folder: replica.ReplicatedFolder{Disk: store.Disk{FS: handle{p.disk, l}}, Dir: stateDir,
			IsReplicated: runs.BelongsToBackup}})
	lead, err := r.AwaitLeadership(ctx)
	if err != nil {
		return err
	}
	conn := l.connect(topics().ClientID(wire.CoordinatorID), nil)
	cfg := p.w.coordinatorConfig(p, l)
	cfg.FolderReplicator = lead
	c, err := coordinator.New(cfg, lead.LeaderOnlyConn(conn))
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	err = c.Run(lead.Context())
	if ctx.Err() != nil {
		within, cancel := l.WithDeadline(context.WithoutCancel(ctx), l.Now().Add(5*time.Second))
		defer cancel()
		return errors.Join(err, lead.StepDown(within, errEnds))
	}
	return errors.Join(err, context.Cause(lead.Context()))
}

// commits checks the coordinator's journal after a new head record was stored. It does nothing if the new head record
// lists the same files as the previous record. The coordinator never writes the journal again before a head record is
// stored.
func (c *invariantChecker) commits(p *party) {
	now := engine.Store{FakeKVServer: c.w.engine, Intercept: func(_ context.Context, _, _ string, do func()) error {
		do()
		return nil
	}}
	var head struct{ Files []string }
	value, _, err := now.Get(context.Background(), "head")
	if err == nil {
		err = json.Unmarshal(value, &head)
	}
	if err != nil {
		c.w.fail("cannot read the head record: %v", err)
		return
	}
	journal := slot(p.disk.file, runFile)
	if slices.Equal(head.Files, c.files) || journal == nil {
		return
	}
	if c.files = head.Files; bytes.Equal(journal, c.committed) {
		return
	}
	c.committed = bytes.Clone(journal)
	if r, ok := recordOf(p.disk.file); ok {
		c.turns++
		c.journaled(p, r)
	}
}
