package sim

import "sync"

// pipeline runs numbered tasks in several goroutines and consumes their results one at a time, in the order of the
// numbers. A slow goroutine blocks the others only when all buffers are in use.
type pipeline[P any] struct {
	pieces       int // total number of tasks
	consumePiece func(P) error

	mu            sync.Mutex
	freed         sync.Cond
	spare         []P // free buffers
	begun         int // next task number to start
	nextToConsume int // next task number to consume
	made          map[int]P
	taking        bool
	stopped       error // first error of consumePiece
}

// newPipeline returns a pipeline for the given number of tasks. room contains the buffers. The pipeline calls take with
// each result, in the order of the tasks, until take returns an error.
func newPipeline[P any](pieces int, room []P, take func(P) error) *pipeline[P] {
	c := &pipeline[P]{pieces: pieces, consumePiece: take, spare: room, made: map[int]P{}}
	c.freed.L = &c.mu
	return c
}

// begin waits for a free buffer and returns the number of the next task. ok is false if no tasks remain.
func (c *pipeline[P]) begin() (n int, room P, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.spare) == 0 && c.stopped == nil && c.begun < c.pieces {
		c.freed.Wait()
	}
	if c.stopped != nil || c.begun == c.pieces {
		return 0, room, false
	}
	last := len(c.spare) - 1 // most recently used buffer, probably still in the CPU cache
	n, room = c.begun, c.spare[last]
	c.begun, c.spare = c.begun+1, c.spare[:last]
	return n, room, true
}

// finish submits the result of task n. If no other goroutine is consuming results, it consumes all results that are
// next in order.
func (c *pipeline[P]) finish(n int, piece P) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made[n] = piece
	if c.taking {
		return
	}
	c.taking = true
	for c.stopped == nil {
		next, there := c.made[c.nextToConsume]
		if !there {
			break
		}
		delete(c.made, c.nextToConsume)
		c.mu.Unlock()
		err := c.consumePiece(next)
		c.mu.Lock()
		c.stopped = err
		c.nextToConsume++
		c.spare = append(c.spare, next)
		c.freed.Broadcast()
	}
	c.taking = false
}
