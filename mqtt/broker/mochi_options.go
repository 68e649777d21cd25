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
	// Messages that mochi has not encoded yet; our own queue follows and never blocks. With 64, a healthy client lost
	// most of a burst of retained messages. This is about the queue size of Mosquitto.
	c.MaximumClientWritesPending = 1024
	return &mochi.Options{
		Capabilities: c,
		// In seconds; effectively never. The update stops the world for memory statistics, and writes retained messages
		// without our lock.
		SysTopicResendInterval: 1 << 32,
		// Mochi logs whole packets, including payloads. The hook and the listener log the important events.
		Logger: slog.New(slog.DiscardHandler),
	}
}
