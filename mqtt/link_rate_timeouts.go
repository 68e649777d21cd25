package mqtt

import (
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// Paho counts a message as traffic only when all of it is through, and a
// broker's answer to a ping waits behind what is on its way already. So a
// publishedMessage may take a quarter of the time for that answer at most, which is half
// a keepalive (requirement R13), and what waits in the kernel half of it.
const (
	// DefaultMinLinkRate is what a link has to carry for the defaults of Options, in
	// bytes per second.
	DefaultMinLinkRate = 20_000

	messagesPerKeepAlive = 2 * 4     // messages in a keepalive
	maxSendBuffer        = 128 << 10 // bytes; the kernel holds twice as many
)

// maxMessageSendTime is how long a link takes for the largest message that we send.
func maxMessageSendTime(rate int) time.Duration {
	return time.Duration(wire.MaxMessage) * time.Second / time.Duration(rate)
}

// MinKeepAlive is the shortest keepalive that a link of this rate, in bytes
// per second, allows for; whole seconds.
func MinKeepAlive(rate int) time.Duration {
	return (messagesPerKeepAlive*maxMessageSendTime(rate) + time.Second - 1).Truncate(time.Second)
}

// connectAttemptTimeout bounds an attempt at one of several URLs while the others have not
// been tried: four round trips of a second each, and a handshake of TLS with
// certificates on both sides, at the link's least rate. Once all have failed in
// it, Options.ConnectTimeout holds alone.
func connectAttemptTimeout(rate int) time.Duration {
	const handshake = 16 << 10 // bytes
	return 4*time.Second + handshake*time.Second/time.Duration(rate)
}

// sendBufferBytes is how many bytes the kernel may be asked to hold of ours: without
// a bound a slow link would have minutes of chunks ahead of each PINGREQ.
func (o *Options) sendBufferBytes() int {
	return int(min(maxSendBuffer, o.KeepAlive.Seconds()*float64(o.MinLinkRate)/8))
}
