package broker

import (
	"log/slog"
	"sync/atomic"

	mochi "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"
	"github.com/mochi-mqtt/server/v2/system"
)

// hook is where mochi asks.
type hook struct {
	mochi.HookBase
	authenticate func(clientID, user, password string) bool
	logger       *slog.Logger
	info         *system.Info
	takeOver     func(clientID string, c *conn)
}

func (h *hook) ID() string { return "fedmesh" }

func (h *hook) Provides(b byte) bool {
	switch b {
	case mochi.OnConnectAuthenticate, mochi.OnACLCheck, mochi.OnSessionEstablish, mochi.OnPacketRead:
		return true
	}
	return false
}

func (h *hook) OnConnectAuthenticate(cl *mochi.Client, pk packets.Packet) bool {
	if h.authenticate == nil || h.authenticate(cl.ID, string(pk.Connect.Username), string(pk.Connect.Password)) {
		return true
	}
	h.logger.Warn("the broker refused a client's user name or password", "client", cl.ID, "from", cl.Net.Remote)
	return false
}

// OnACLCheck lets everyone who is in read and write every topic.
func (h *hook) OnACLCheck(*mochi.Client, string, bool) bool { return true }

// OnSessionEstablish comes between CONNECT and CONNACK of a client that may
// come in.
func (h *hook) OnSessionEstablish(cl *mochi.Client, _ packets.Packet) {
	h.takeOver(cl.ID, cl.Net.Conn.(*conn)) // all connections are the listener's
}

// OnPacketRead frees the packet id of a SUBSCRIBE or UNSUBSCRIBE. The ids of
// the two directions are independent (MQTT 3.1.1, 2.3.1), but mochi takes one
// that it uses itself, for a message not yet acknowledged, for a clash: it
// refuses the subscription, or quietly keeps what shall be given up. The
// message was sent, and with clean sessions it is never sent again, so mochi
// needs no record of it.
func (h *hook) OnPacketRead(cl *mochi.Client, pk packets.Packet) (packets.Packet, error) {
	if t := pk.FixedHeader.Type; t == packets.Subscribe || t == packets.Unsubscribe {
		if cl.State.Inflight.Delete(pk.PacketID) {
			atomic.AddInt64(&h.info.Inflight, -1)
			cl.State.Inflight.IncreaseSendQuota()
		}
	}
	return pk, nil
}
