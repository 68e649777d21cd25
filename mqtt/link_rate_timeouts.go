package mqtt

import (
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// These constants keep a slow link alive (requirement R13). Paho waits half a keepalive interval for a PINGRESP, which
// is queued behind other data. Sending one message may therefore take at most a quarter of this time, and sending the
// data in the kernel's send buffer at most half of this time.
const (
	// DefaultMinLinkRate is the minimum link rate, in bytes per second, for which the defaults of Options are
	// sufficient.
	DefaultMinLinkRate = 20_000

	messagesPerKeepAlive = 2 * 4     // number of messages of maximum size that can be sent within a keepalive interval
	maxSendBuffer        = 128 << 10 // maximum send buffer in bytes; the kernel allocates twice as much
)

// maxMessageSendTime returns the time to send the largest message at the given link rate, in bytes per second.
func maxMessageSendTime(rate int) time.Duration {
	return time.Duration(wire.MaxMessage) * time.Second / time.Duration(rate)
}

// MinKeepAlive returns the shortest keepalive, in whole seconds, for a link rate in bytes per second.
func MinKeepAlive(rate int) time.Duration {
	return (messagesPerKeepAlive*maxMessageSendTime(rate) + time.Second - 1).Truncate(time.Second)
}

// connectAttemptTimeout returns the timeout of a connection attempt while other URLs have not been tried yet. It allows
// four round trips of one second, and a TLS handshake with client certificates at the given link rate. After all URLs
// have failed once, Options.ConnectTimeout applies instead.
func connectAttemptTimeout(rate int) time.Duration {
	const handshake = 16 << 10 // size in bytes of a TLS handshake
	return 4*time.Second + handshake*time.Second/time.Duration(rate)
}

// sendBufferBytes returns the size to set for the kernel's send buffer. Without a limit, a slow link could need minutes
// to send the data that is queued before a PINGREQ.
func (o *Options) sendBufferBytes() int {
	return int(min(maxSendBuffer, o.KeepAlive.Seconds()*float64(o.MinLinkRate)/8))
}
