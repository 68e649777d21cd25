package sim

import "sync"

// pipeline lets goroutines make numbered pieces at the same time, and takes them off in the order of their numbers, one
// at a time. A slow goroutine holds nobody up before all room is in use.
type pipeline[P any] struct {
	pieces       int // how many there are to make
	consumePiece func(P) error

	mu            sync.Mutex
	freed         sync.Cond
	spare         []P // room for pieces
	begun         int // the next number to be given out
	nextToConsume int // the next number to be taken off
	made          map[int]P
	taking        bool
	stopped       error // what take returned first
}

// newPipeline makes one for this many pieces, with room for some of them. take is called with one piece after the
// other, until it fails.
func newPipeline[P any](pieces int, room []P, take func(P) error) *pipeline[P] {
	c := &pipeline[P]{pieces: pieces, consumePiece: take, spare: room, made: map[int]P{}}
	c.freed.L = &c.mu
	return c
}

// begin waits for room and gives out a number; false when no more is to be made.
func (c *pipeline[P]) begin() (n int, room P, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.spare) == 0 && c.stopped == nil && c.begun < c.pieces {
		c.freed.Wait()
	}
	if c.stopped != nil || c.begun == c.pieces {
		return 0, room, false
	}
	last := len(c.spare) - 1 // the one that is still in the cache
	n, room = c.begun, c.spare[last]
	c.begun, c.spare = c.begun+1, c.spare[:last]
	return n, room, true
}

// finish hands in piece n, and takes off what is next in line unless another goroutine is doing that.
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
