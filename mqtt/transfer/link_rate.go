package transfer

import (
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// LinkRate is what a link carries at least, in bytes per second. 0 is any number:
// nothing waits for the link then.
type LinkRate int

// sendTime is how long the link takes for this many bytes, at most.
func (r LinkRate) sendTime(bytes int) time.Duration {
	if r <= 0 {
		return 0
	}
	return time.Duration(bytes) * time.Second / time.Duration(r)
}

const (
	// maxQueuedPullTime bounds what a pull has the broker queue for a slow link: answers
	// to pings wait behind it.
	maxQueuedPullTime   = 24 * time.Second
	minPullWindowChunks = 2 // chunks, at any rate: one arrives, one is on its way
)

// ForLinkRate returns the policy on a link of this rate: what is asked for at a time
// comes within seconds, and a timeout leaves time for three chunks.
func (c PullerConfig) ForLinkRate(r LinkRate) PullerConfig {
	if chunk := r.sendTime(wire.MaxMessage); chunk > 0 {
		c.WindowChunks = min(c.WindowChunks, max(minPullWindowChunks, int(maxQueuedPullTime/chunk)))
		c.MaxChunkSendTime = chunk
	}
	return c
}
