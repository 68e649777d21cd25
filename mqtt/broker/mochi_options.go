package broker

import (
	"log/slog"

	mochi "github.com/mochi-mqtt/server/v2"
)

// mochiOptions replaces those of mochi's defaults that have no bound.
func mochiOptions(maxPacket, maxConns int) *mochi.Options {
	c := mochi.NewDefaultServerCapabilities()
	c.MaximumClients = int64(maxConns)
	c.MaximumPacketSize = uint32(maxPacket) // else the claimed size is allocated before the log-in
	c.MaximumMessageExpiryInterval = 0      // else retained messages are deleted after a day
	c.MaximumSessionExpiryInterval = 24 * 60 * 60
	c.ReceiveMaximum = 64
	c.MaximumInflight = 256
	// Messages that mochi has not encoded yet; our queue is behind it and never blocks.
	// With 64, a healthy client lost most of a burst of retained messages. This
	// is about what Mosquitto queues.
	c.MaximumClientWritesPending = 1024
	return &mochi.Options{
		Capabilities: c,
		// Seconds: never. It stops the world for its memory statistics, and writes to
		// what is retained where nothing keeps it apart from who looks.
		SysTopicResendInterval: 1 << 32,
		// Mochi logs whole packets, payloads and all. The important lines are logged by the
		// hook and the listener.
		Logger: slog.New(slog.DiscardHandler),
	}
}
