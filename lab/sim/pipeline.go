package sim

import "sync"

// pipeline runs numbered tasks in several goroutines and consumes their results one at a time, in the order of the
// numbers. A slow goroutine blocks the others only when all buffers are in use.
type pipeline[P any] struct {
	pieces       int // total number of pieces
	consumePiece func(P) error

	mu            sync.Mutex
	freed         sync.Cond
	spare         []P // free buffers
	begun         int // next number to hand out
	nextToConsume int // next number to consume
	made          map[int]P
	taking        bool
	stopped       error // first error of consumePiece
}

// newPipeline returns a pipeline of the given number of pieces and buffers. It calls take with each piece in order
// until take fails.
func newPipeline[P any](pieces int, room []P, take func(P) error) *pipeline[P] {
	c := &pipeline[P]{pieces: pieces, consumePiece: take, spare: room, made: map[int]P{}}
	c.freed.L = &c.mu
	return c
}

// begin waits for a free buffer and returns the next number. ok is false when no more pieces are needed.
func (c *pipeline[P]) begin() (n int, room P, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.spare) == 0 && c.stopped == nil && c.begun < c.pieces {
		c.freed.Wait()
	}
	if c.stopped != nil || c.begun == c.pieces {
		return 0, room, false
	}
	last := len(c.spare) - 1 // most recently used, still in the cache
	n, room = c.begun, c.spare[last]
	c.begun, c.spare = c.begun+1, c.spare[:last]
	return n, room, true
}

// finish submits piece n. It consumes all pieces that are next in order, unless another goroutine does so.
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
