package reproduce

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// inParallel calls work with each index from 0 to n−1, on all CPU cores. If ctx ends, it stops early and returns an
// error.
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
