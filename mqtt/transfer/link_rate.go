package transfer

import (
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// LinkRate is the minimum rate of a link in bytes per second. 0 means that the rate is unlimited.
type LinkRate int

// sendTime returns the maximum time that the link needs for the given number of bytes.
func (r LinkRate) sendTime(bytes int) time.Duration {
	if r <= 0 {
		return 0
	}
	return time.Duration(bytes) * time.Second / time.Duration(r)
}

const (
	// maxQueuedPullTime limits the amount of data that a BlobPuller requests at once. It is the time to receive the
	// data over a slow link. The limit is needed because the broker's answers to pings are queued behind these data.
	maxQueuedPullTime = 24 * time.Second
	// minPullWindowChunks is the minimum number of chunks requested at once. With two chunks, one chunk can be
	// processed while the next chunk arrives.
	minPullWindowChunks = 2
)

// ForLinkRate returns the configuration for a link of this rate. The window is small enough to arrive within
// maxQueuedPullTime, and a timeout allows for three chunks.
func (c PullerConfig) ForLinkRate(r LinkRate) PullerConfig {
	if chunk := r.sendTime(wire.MaxMessage); chunk > 0 {
		c.WindowChunks = min(c.WindowChunks, max(minPullWindowChunks, int(maxQueuedPullTime/chunk)))
		c.MaxChunkSendTime = chunk
	}
	return c
}
