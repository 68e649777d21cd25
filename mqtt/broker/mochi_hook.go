package broker

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	mochi "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"
	"github.com/mochi-mqtt/server/v2/system"

	"github.com/fedmesh/fedmesh/wire"
)

// mochiHook is where mochi asks.
type mochiHook struct {
	mochi.HookBase
	options          Options
	info             *system.Info
	takeOverClientID func(clientID string, c *conn)
	retainedStore    *retainedStore // nil without a folder
	denied           atomic.Int64

	// retainedMutex keeps those who look through all that is retained apart from who
	// changes it: mochi reads in its index what it writes under a lock of its own.
	// Looking up one topic needs no lock.
	retainedMutex sync.RWMutex
	quota         retainedQuota
}

func (h *mochiHook) ID() string { return "fedmesh" }

func (h *mochiHook) Provides(b byte) bool {
	switch b {
	case mochi.OnConnectAuthenticate, mochi.OnACLCheck, mochi.OnSessionEstablish, mochi.OnPacketRead, mochi.OnPublish,
		mochi.OnWill, mochi.OnRetainMessage, mochi.OnSubscribe, mochi.OnPacketProcessed:
		return true
	}
	return false
}

// connOf works because all connections are the listener's.
func connOf(cl *mochi.Client) *conn { return cl.Net.Conn.(*conn) }

func (h *mochiHook) OnConnectAuthenticate(cl *mochi.Client, pk packets.Packet) bool {
	c := connOf(cl)
	proven := c.user != ""
	if !proven {
		c.user = string(pk.Connect.Username)
	}
	if (proven || h.options.Allow != nil) && cl.ID != c.user {
		h.options.Logger.Warn("the broker refused a client id that is not the user name", "client", cl.ID,
			"user", c.user, "from", cl.Net.Remote)
		return false
	}
	if h.options.Authenticate == nil || h.options.Authenticate(cl.ID, c.user, string(pk.Connect.Password)) {
		return true
	}
	h.options.Logger.Warn("the broker refused a client's user name or password", "client", cl.ID, "from", cl.Net.Remote)
	return false
}

// OnSessionEstablish comes between CONNECT and CONNACK of a client that may
// come in. Mochi would publish its will without asking whether it may.
func (h *mochiHook) OnSessionEstablish(cl *mochi.Client, _ packets.Packet) {
	if will := cl.Properties.Will; will.Flag == 1 && !h.mayPublish(cl, will.TopicName) {
		cl.Properties.Will = mochi.Will{}
	}
	cl.Properties.Will.WillDelayInterval = 0 // else it would be retained without OnWill
	h.takeOverClientID(cl.ID, connOf(cl))
}

// OnACLCheck is asked for each filter, and for each message and receiver. For
// publishing the answer is OnPublish's: a no here would end the connection,
// and the client would reconnect and send the same message again and again.
func (h *mochiHook) OnACLCheck(cl *mochi.Client, topic string, toWrite bool) bool {
	return toWrite || h.options.Allow == nil || h.options.Allow(connOf(cl).user, topic, false)
}

// OnPublish has a message that may not be published acknowledged, but dropped.
func (h *mochiHook) OnPublish(cl *mochi.Client, pk packets.Packet) (packets.Packet, error) {
	if !h.mayPublish(cl, pk.TopicName) {
		return pk, packets.CodeSuccessIgnore
	}
	// Mochi's topic lies in the bytes of the whole packet, which a retained
	// message would keep beside its own copy of the payload.
	pk.TopicName = strings.Clone(pk.TopicName)
	if !pk.FixedHeader.Retain {
		return pk, nil
	}
	if !h.mayRetain(cl, pk.TopicName, len(pk.Payload)) {
		return pk, packets.CodeSuccessIgnore
	}
	pk.Expiry = 0 // MQTT 5 has one; mochi would drop the message, and never free its node of the index
	return pk, nil
}

// OnWill comes before a will is published, retained or not.
func (h *mochiHook) OnWill(cl *mochi.Client, will mochi.Will) (mochi.Will, error) {
	will.Retain = will.Retain && h.mayRetain(cl, will.TopicName, len(will.Payload))
	return will, nil
}

// mayRetain takes the lock for retaining, until OnRetainMessage, which comes
// next, if the sender has room for the message.
func (h *mochiHook) mayRetain(cl *mochi.Client, topic string, payload int) bool {
	h.retainedMutex.Lock()
	if h.quota.admit(connOf(cl).user, topic, payload) {
		return true
	}
	h.retainedMutex.Unlock()
	h.logDenial(cl, topic,
		"the broker dropped a message to be retained: those of its sender would take too many bytes; "+
			"more of this connection are counted only")
	return false
}

// mayPublish counts denials.
func (h *mochiHook) mayPublish(cl *mochi.Client, topic string) bool {
	if h.options.Allow == nil || h.options.Allow(connOf(cl).user, topic, true) {
		return true
	}
	h.logDenial(cl, topic, "the broker dropped a message that its sender may not publish; more of this connection are "+
		"counted only")
	return false
}

// logDenial logs the first denial of a connection.
func (h *mochiHook) logDenial(cl *mochi.Client, topic, why string) {
	h.denied.Add(1)
	if !connOf(cl).denialLogged.Swap(true) {
		h.options.Logger.Warn(why, "client", cl.ID, "topic", topic)
	}
}

func (h *mochiHook) OnRetainMessage(_ *mochi.Client, pk packets.Packet, _ int64) {
	h.retainedMutex.Unlock()
	if h.retainedStore != nil {
		h.retainedStore.saveTopic(pk.TopicName)
	}
}

// maxSubscriptions bounds those of a client. An agent has one for each neighbour, and 20 others at most.
const maxSubscriptions = wire.MaxNeighbors + 32

// OnSubscribe comes before a subscription and what is retained under it. Mochi refuses a filter without a character:
// those that are too many lose theirs.
func (h *mochiHook) OnSubscribe(cl *mochi.Client, pk packets.Packet) packets.Packet {
	pk.Filters = slices.Clone(pk.Filters)
	has := cl.State.Subscriptions.Len()
	for i := range pk.Filters {
		if _, is := cl.State.Subscriptions.Get(pk.Filters[i].Filter); is {
			continue
		}
		if has++; has > maxSubscriptions {
			h.logDenial(cl, pk.Filters[i].Filter,
				"the broker refused a subscription, of which its client has too many; "+
					"more of this connection are counted only")
			pk.Filters[i].Filter = ""
		}
	}
	looks := func(s packets.Subscription) bool { return strings.ContainsAny(s.Filter, "+#") }
	if slices.ContainsFunc(pk.Filters, looks) {
		h.retainedMutex.RLock()
		connOf(cl).unlockRetained = h.retainedMutex.RUnlock
	}
	return pk
}

// OnPacketProcessed comes after each packet: it ends the look through what is retained that OnSubscribe began.
func (h *mochiHook) OnPacketProcessed(cl *mochi.Client, _ packets.Packet, _ error) {
	connOf(cl).releaseRetained()
}

// OnPacketRead frees the packet id of a SUBSCRIBE or UNSUBSCRIBE. The ids of
// the two directions are independent (MQTT 3.1.1, 2.3.1), but mochi takes one
// that it uses itself, for a message not yet acknowledged, for a clash: it
// refuses the subscription, or quietly keeps what should be given up. The
// message was sent, and with clean sessions it is never sent again, so mochi
// needs no record of it.
func (h *mochiHook) OnPacketRead(cl *mochi.Client, pk packets.Packet) (packets.Packet, error) {
	if t := pk.FixedHeader.Type; t == packets.Subscribe || t == packets.Unsubscribe {
		if cl.State.Inflight.Delete(pk.PacketID) {
			atomic.AddInt64(&h.info.Inflight, -1)
			cl.State.Inflight.IncreaseSendQuota()
		}
	}
	return pk, nil
}
