package mqtt

import (
	"math/rand/v2"
	"time"
)

const (
	// maxFirstRetryDelay is the maximum delay after the first failed connection attempt. With several URLs it is also
	// the maximum delay between the first attempts at each URL.
	maxFirstRetryDelay = time.Second
	// maxDelayAfterLoss is the maximum delay after the loss of a link. All clients of a failed broker lose their links
	// at the same moment and must not reconnect together.
	maxDelayAfterLoss = 16 * time.Second
)

// reconnectBackoff computes random delays between connection attempts. After the loss of a link the delay is uniform
// from 0 to maxDelayAfterLoss, divided by the number of URLs, so that each node receives no more attempts per second
// than a single broker would.
//
// After all URLs have failed, the delay is uniform between half and all of the time since the loss, divided by the
// number of URLs in the same way. A client is therefore connected again within maxDelayAfterLoss, or within twice the
// broker's downtime.
type reconnectBackoff struct {
	rand                      *rand.Rand
	maxDelay                  time.Duration
	brokerURLCount            int
	consecutiveFailedAttempts int // number of failed attempts since the last open link
}

func (b *reconnectBackoff) delayAfterLinkLoss() time.Duration {
	b.consecutiveFailedAttempts = 0
	return b.randomDelayBetween(0, min(maxDelayAfterLoss, b.maxDelay)/time.Duration(b.brokerURLCount))
}

// delayAfterFailedAttempt returns the delay after a failed attempt. since is the time since the loss of the last link,
// or since the start.
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
