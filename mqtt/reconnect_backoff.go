package mqtt

import (
	"math/rand/v2"
	"time"
)

const (
	// maxFirstRetryDelay bounds the wait after a first failed attempt, and between the
	// first attempts at several URLs.
	maxFirstRetryDelay = time.Second
	// maxDelayAfterLoss bounds the wait after the loss of a link: all clients of that
	// broker lost theirs at the same moment, and must not all come back at once.
	maxDelayAfterLoss = 16 * time.Second
)

// reconnectBackoff draws the waits between attempts. After the loss of a link a wait is
// uniform from 0 to maxDelayAfterLoss, divided by the number of URLs: so each node
// sees no more attempts in a second than a single broker would. Once all URLs
// have failed, a wait is uniform in the upper half of the time since the loss,
// divided in the same way: so the clients stay spread out, and a client is back
// within maxDelayAfterLoss of the loss, or when twice the time has passed for which the
// broker was away.
type reconnectBackoff struct {
	rand                      *rand.Rand
	maxDelay                  time.Duration
	brokerURLCount            int
	consecutiveFailedAttempts int // in a row
}

// delayAfterLinkLoss returns the wait after the loss of a link.
func (b *reconnectBackoff) delayAfterLinkLoss() time.Duration {
	b.consecutiveFailedAttempts = 0
	return b.randomDelayBetween(0, min(maxDelayAfterLoss, b.maxDelay)/time.Duration(b.brokerURLCount))
}

// delayAfterFailedAttempt returns the wait after a failed attempt, that long after the loss of
// the last link, or after the start.
func (b *reconnectBackoff) delayAfterFailedAttempt(since time.Duration) time.Duration {
	b.consecutiveFailedAttempts++
	if b.consecutiveFailedAttempts < b.brokerURLCount {
		return b.randomDelayBetween(0, min(maxFirstRetryDelay, b.maxDelay))
	}
	ceiling := min(max(maxFirstRetryDelay, since), b.maxDelay) / time.Duration(b.brokerURLCount)
	return b.randomDelayBetween(ceiling/2, ceiling)
}

func (b *reconnectBackoff) randomDelayBetween(least, most time.Duration) time.Duration {
	return least + time.Duration(b.rand.Int64N(int64(most-least)+1))
}
