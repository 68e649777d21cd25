package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/replica"
	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/internal/testkit/engine"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// call is a step of a replicated coordinator at which it can be killed: before or after a call of the store.
type call struct{ op, key, when string }

func (c call) String() string {
	return c.when + " " + c.op + " " + strings.TrimRight(c.key, "0123456789abcdef")
}

var errDead = errors.New("the process is dead")

// reach returns the store to which a process is connected. The process can be killed before and after each call.
func (p *process) reach(l *life) replica.KeyValueStore {
	return engine.Store{FakeKVServer: p.engine, Intercept: func(_ context.Context, op, key string, do func()) error {
		for _, when := range []string{"before", "after"} {
			if p.f.isDead(l) {
				return errDead
			}
			if p.moment != nil {
				p.moment(call{op, key, when})
			}
			if p.f.isDead(l) {
				return errDead
			}
			if when == "before" {
				do()
			}
		}
		return nil
	}}
}

// amongSeveral returns the main function of a replicated coordinator. The coordinator starts when its replica becomes
// the leader.
func (p *process) amongSeveral(l *life, cfg coordinator.Config, connect func() mqtt.Conn) func(context.Context) error {
	p.lives++
	r := replica.New(replica.Config{Store: p.reach(l), Name: fmt.Sprint("c", p.lives), Instance: uint64(p.lives),
		Runtime: host.RealTimeRuntime{}, Observer: nobody{},
		Folder: replica.ReplicatedFolder{Disk: store.LocalDisk, Dir: p.dir, IsReplicated: runs.BelongsToBackup}})
	return func(ctx context.Context) error {
		lead, err := r.AwaitLeadership(ctx)
		if err != nil {
			return err
		}
		cfg.FolderReplicator = lead
		conn := connect()
		c, err := coordinator.New(cfg, lead.LeaderOnlyConn(conn))
		if err != nil {
			return errors.Join(err, conn.Close())
		}
		err = c.Run(lead.Context())
		if ctx.Err() != nil && !p.f.isDead(l) {
			return errors.Join(err, lead.StepDown(context.WithoutCancel(ctx), errDead))
		}
		return err
	}
}

type nobody struct{}

func (nobody) Observe(observe.Event) {}

// takenOver runs three agents and kills the leading coordinator at its n-th step (an event, a message or a call of the
// store). Then another coordinator takes over, either on another machine or, if same is true, on the same machine.
func takenOver(t *testing.T, n int, same bool) (hash wire.Digest, at string) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 3, memory.Options{})
		f.cfg.Round.MaxAggregations, f.cfg.Round.PauseBetweenRounds = 2, time.Second
		p := f.coord
		p.engine = engine.New()
		dead := make(chan string, 1)
		var gate sync.Mutex
		p.moment = func(m any) {
			gate.Lock()
			defer gate.Unlock()
			if n--; n == 0 {
				p.kill()
				if !same {
					p.dir = t.TempDir()
				}
				dead <- fmt.Sprintf("%T %v", m, m)
			}
		}
		f.start()
		over, enough := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(over)
			select {
			case at = <-dead:
				p.again()
			case <-enough:
			}
		}()
		hash = f.finished(2 * time.Hour)
		wait(10 * time.Second) // wait until the run is finished
		gate.Lock()
		if n > 0 {
			n = 0 // kill the coordinator only once
			close(enough)
		}
		gate.Unlock()
		<-over
		wait(time.Minute)
		spell := fmt.Sprintf("killed at %.80s, same machine: %v", at, same)
		f.checkTraining(spell)
		f.checkHistory(spell)
		f.checkCounts(spell)
	})
	return hash, at
}

// checkTraining is like checkOnce, but allows updates to be sent and accepted again.
func (f *federation) checkTraining(spell string) {
	f.t.Helper()
	f.mu.Lock()
	var kept []happening
	for _, h := range f.log {
		if _, is := h.event.(round.UpdateAccepted); !is {
			kept = append(kept, h)
		}
	}
	f.log = kept
	f.mu.Unlock()
	f.checkOnce(spell)
}

// TestCoordinatorFollowed kills the leading coordinator at each step, before and after each write that must survive.
// The next leader must end the run with the same model. Each agent must train once per round, no round may be
// abandoned, and the history must contain each round once.
func TestCoordinatorFollowed(t *testing.T) {
	t.Parallel()
	want, at := takenOver(t, 1<<30, false)
	if at != "" {
		t.Fatal("killed at no moment:", at)
	}
	n, stride := 1, followedStride
	if testing.Short() {
		stride = 29
	}
	for ; ; n += stride {
		hash, at := takenOver(t, n, n%2 == 0)
		if at == "" {
			break
		}
		if hash != want {
			t.Errorf("killed at moment %d, %.80s: model %x, want %x", n, at, hash[:4], want[:4])
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	t.Logf("it had %d moments", n)
	if n < 100 {
		t.Errorf("the run had %d moments only", n)
	}
}
