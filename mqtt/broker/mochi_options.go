package broker

import (
	"log/slog"

	mochi "github.com/mochi-mqtt/server/v2"
)

// mochiOptions returns mochi's options, with limits instead of its unlimited defaults.
func mochiOptions(maxPacket, maxConns int) *mochi.Options {
	c := mochi.NewDefaultServerCapabilities()
	c.MaximumClients = int64(maxConns)
	c.MaximumPacketSize = uint32(maxPacket)
	c.MaximumMessageExpiryInterval = 0
	c.MaximumSessionExpiryInterval = 24 * 60 * 60
	c.ReceiveMaximum = 64
	c.MaximumInflight = 256
	// MaximumClientWritesPending limits the messages that mochi has not encoded yet. The queue of conn follows and
	// never blocks. With a limit of 64, a healthy client lost most of a burst of retained messages. The value 1024 is
	// about the queue size of Mosquitto.
	c.MaximumClientWritesPending = 1024
	return &mochi.Options{
		Capabilities: c,
		// SysTopicResendInterval is the interval in seconds between updates of mochi's statistics. The value is large
		// enough to disable the updates, because an update stops all goroutines for memory statistics and changes
		// retained messages without holding the broker's lock.
		SysTopicResendInterval: 1 << 32,
		// Discard mochi's logs, which contain whole packets. The hook and the listener log important events.
		Logger: slog.New(slog.DiscardHandler),
	}
}
