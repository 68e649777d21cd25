package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// stuck is the time without any arriving message after which the missing messages are considered lost.
const stuck = 15 * time.Second

var errLost = errors.New("lost")

// count counts arriving messages and lets a goroutine wait for the last message.
type count struct {
	left atomic.Int64
	all  chan struct{}
}

func newCount(n int) *count {
	c := &count{all: make(chan struct{})}
	c.left.Store(int64(n))
	return c
}

func (c *count) done() {
	if c.left.Add(-1) == 0 {
		close(c.all)
	}
}

// wait returns when all expected messages have arrived. If no message arrives for the duration stuck, it returns
// errLost.
func (c *count) wait(ctx context.Context, failed <-chan error) error {
	for before := int64(math.MaxInt64); ; {
		select {
		case <-c.all:
			return nil
		case err := <-failed:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(stuck):
		}
		left := c.left.Load()
		if left == before {
			return fmt.Errorf("%d %w", left, errLost)
		}
		before = left
	}
}

// vector returns the bytes of d random float32 values, which cannot be compressed.
func vector(d int) []byte {
	rng := rand.New(rand.NewPCG(1, 2))
	x := make([]float32, d)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return wire.AppendVector(nil, x)
}

func agentID(k int) wire.AgentID { return wire.AgentID(fmt.Sprintf("a%d", k)) }
