package mqtt

import (
	"math/rand/v2"
	"time"
)

const (
	// firstDelay bounds the wait after a first failed attempt.
	firstDelay = time.Second
	// herdDelay bounds the wait after the loss of a link: all clients of that
	// broker lost theirs at the same moment, and shall not all come back at once.
	herdDelay = 16 * time.Second
)

// backoff draws the waits between attempts: uniform from nothing to a ceiling
// that doubles with each failure, up to a longest.
type backoff struct {
	rand    *rand.Rand
	longest time.Duration
	ceiling time.Duration
}

// reset says which ceiling the next wait has.
func (b *backoff) reset(ceiling time.Duration) { b.ceiling = ceiling }

func (b *backoff) next() time.Duration {
	ceiling := min(b.ceiling, b.longest)
	b.ceiling = ceiling * 2
	return time.Duration(b.rand.Int64N(int64(ceiling) + 1))
}
