package sim

import (
	"errors"
	"slices"
	"sync"
	"testing"
)

// TestPipelineKeepsOrder finishes tasks in reverse order. Their results must be consumed in order, and their buffers
// must become free.
func TestPipelineKeepsOrder(t *testing.T) {
	var taken []int
	c := newPipeline(6, make([]*int, 3), func(n *int) error {
		taken = append(taken, *n)
		return nil
	})
	for range 2 {
		var begun []int
		for range 3 {
			n, _, ok := c.begin()
			if !ok {
				t.Fatal("no piece is given out")
			}
			begun = append(begun, n)
		}
		for _, n := range slices.Backward(begun) {
			c.finish(n, &n)
		}
	}
	if _, _, ok := c.begin(); ok || !slices.Equal(taken, []int{0, 1, 2, 3, 4, 5}) {
		t.Errorf("taken are %v, and more is %v", taken, ok)
	}
}

// TestPipelineStopsAtTheFirstError checks that the pipeline stops at the first error in the order of the tasks,
// regardless of the scheduling of goroutines.
func TestPipelineStopsAtTheFirstError(t *testing.T) {
	type piece struct{ n int }
	for range 50 {
		sum := 0
		c := newPipeline(1000, []*piece{{}, {}, {}, {}}, func(p *piece) error {
			if p.n >= 100 {
				return errors.New("bad piece")
			}
			sum += p.n
			return nil
		})
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() {
				for n, p, ok := c.begin(); ok; n, p, ok = c.begin() {
					p.n = n
					c.finish(n, p)
				}
			})
		}
		group.Wait()
		if c.stopped == nil || sum != 99*100/2 {
			t.Fatalf("stopped by %v after a sum of %d", c.stopped, sum)
		}
	}
}
