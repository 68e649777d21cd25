package sim

import "sync"

// turn lets goroutines do numbered pieces in order, each after the one before.
type turn struct {
	mu   sync.Mutex
	cond *sync.Cond
	next int
	err  error // the first, in the order of the pieces
}

func newTurn() *turn {
	t := &turn{}
	t.cond = sync.NewCond(&t.mu)
	return t
}

// take waits for the turn of piece n, does it, and passes the turn on. do is told whether a piece before has failed.
func (t *turn) take(n int, do func(failed bool) error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.next != n {
		t.cond.Wait()
	}
	if err := do(t.err != nil); t.err == nil {
		t.err = err
	}
	t.next++
	t.cond.Broadcast()
}
