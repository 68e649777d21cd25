package reproduce

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// inParallel calls work for 0 … n−1 on all cores. It stops early and returns an error if ctx ends.
func inParallel(ctx context.Context, n int, work func(i int)) error {
	var next atomic.Int64
	var group sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		group.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				work(i)
			}
		})
	}
	group.Wait()
	return ctx.Err()
}
