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

// mochiHook implements mochi's hooks for authentication, access rules and retained messages.
type mochiHook struct {
	mochi.HookBase
	options          Options
	info             *system.Info
	takeOverClientID func(clientID string, c *conn)
	retainedStore    *retainedStore // store on disk; nil if no folder is configured
	denied           atomic.Int64

	// retainedMutex protects the index of retained messages, because mochi reads the index without its own lock.
	// Looking up a single topic needs no lock.
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

// connOf returns the conn of a client. All connections come from the listener, so the type assertion holds.
func connOf(cl *mochi.Client) *conn { return cl.Net.Conn.(*conn) }

func (h *mochiHook) OnConnectAuthenticate(cl *mochi.Client, pk packets.Packet) bool {
	c := connOf(cl)
	proven := c.user != ""
	if !proven {
		c.user = string(pk.Connect.Username)
	}
	if (proven || h.options.Allow != nil) && cl.ID != c.user {
		h.options.Logger.Warn("broker refused a client: client id differs from the user name", "client", cl.ID,
			"user", c.user, "from", cl.Net.Remote)
		return false
	}
	if h.options.Authenticate == nil || h.options.Authenticate(cl.ID, c.user, string(pk.Connect.Password)) {
		return true
	}
	h.options.Logger.Warn("broker refused a client: invalid user name or "+
		"password", "client", cl.ID, "from", cl.Net.Remote)
	return false
}

// OnSessionEstablish is called between CONNECT and CONNACK of an accepted client. It removes a will that the client may
// not publish, because mochi would publish it without a check.
func (h *mochiHook) OnSessionEstablish(cl *mochi.Client, _ packets.Packet) {
	if will := cl.Properties.Will; will.Flag == 1 && !h.mayPublish(cl, will.TopicName) {
		cl.Properties.Will = mochi.Will{}
	}
	cl.Properties.Will.WillDelayInterval = 0
	h.takeOverClientID(cl.ID, connOf(cl))
}

// OnACLCheck checks subscriptions and deliveries against the access rules. It allows all publishing, which OnPublish
// checks instead: if OnACLCheck refused a message, mochi would close the connection, and the client would reconnect and
// repeat the message forever.
func (h *mochiHook) OnACLCheck(cl *mochi.Client, topic string, toWrite bool) bool {
	return toWrite || h.options.Allow == nil || h.options.Allow(connOf(cl).user, topic, false)
}

// OnPublish drops messages that the client may not publish or retain. Dropped messages are still acknowledged.
func (h *mochiHook) OnPublish(cl *mochi.Client, pk packets.Packet) (packets.Packet, error) {
	if !h.mayPublish(cl, pk.TopicName) {
		return pk, packets.CodeSuccessIgnore
	}
	// Copy the topic. Mochi's string refers to the bytes of the whole packet, which a retained message would keep in
	// memory in addition to its own copy of the payload.
	pk.TopicName = strings.Clone(pk.TopicName)
	if !pk.FixedHeader.Retain {
		return pk, nil
	}
	if !h.mayRetain(cl, pk.TopicName, len(pk.Payload)) {
		return pk, packets.CodeSuccessIgnore
	}
	pk.Expiry = 0
	return pk, nil
}

// OnWill is called before a will is published, whether retained or not.
func (h *mochiHook) OnWill(cl *mochi.Client, will mochi.Will) (mochi.Will, error) {
	will.Retain = will.Retain && h.mayRetain(cl, will.TopicName, len(will.Payload))
	return will, nil
}

// mayRetain reports whether the sender's quota has room for the message. If so, it locks retainedMutex until
// OnRetainMessage, which mochi calls next.
func (h *mochiHook) mayRetain(cl *mochi.Client, topic string, payload int) bool {
	h.retainedMutex.Lock()
	if h.quota.admit(connOf(cl).user, topic, payload) {
		return true
	}
	h.retainedMutex.Unlock()
	h.logDenial(cl, topic,
		"broker dropped a retained message: sender exceeds its quota; further drops on this connection are not logged")
	return false
}

// mayPublish reports whether the client may publish to topic. It counts and logs denials.
func (h *mochiHook) mayPublish(cl *mochi.Client, topic string) bool {
	if h.options.Allow == nil || h.options.Allow(connOf(cl).user, topic, true) {
		return true
	}
	h.logDenial(cl, topic, "broker dropped a message: sender may not publish to this topic; further drops on this "+
		"connection are not logged")
	return false
}

// logDenial counts a denied message or subscription, and logs the first denial of each connection.
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

// maxSubscriptions is the maximum number of subscriptions of a client. An agent has one subscription for each neighbour
// and at most 20 other subscriptions.
const maxSubscriptions = wire.MaxNeighbors + 32

// OnSubscribe is called before mochi adds subscriptions and sends their retained messages. It empties the filters
// beyond maxSubscriptions, because mochi refuses an empty filter.
func (h *mochiHook) OnSubscribe(cl *mochi.Client, pk packets.Packet) packets.Packet {
	pk.Filters = slices.Clone(pk.Filters)
	has := cl.State.Subscriptions.Len()
	for i := range pk.Filters {
		if _, is := cl.State.Subscriptions.Get(pk.Filters[i].Filter); is {
			continue
		}
		if has++; has > maxSubscriptions {
			h.logDenial(cl, pk.Filters[i].Filter,
				"broker refused a subscription: client has too many subscriptions; further refusals on this "+
					"connection are not logged")
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

// OnPacketProcessed is called after each packet. It releases the read lock that OnSubscribe acquired.
func (h *mochiHook) OnPacketProcessed(cl *mochi.Client, _ packets.Packet, _ error) {
	connOf(cl).releaseRetained()
}

// OnPacketRead releases the packet id of a SUBSCRIBE or UNSUBSCRIBE packet in mochi's records. The packet ids of the
// two directions are independent (MQTT 3.1.1, 2.3.1). But if mochi has an unacknowledged message with the same id, it
// refuses the subscription, or silently ignores an UNSUBSCRIBE. In a clean session that message is never sent again, so
// mochi does not need its record.
func (h *mochiHook) OnPacketRead(cl *mochi.Client, pk packets.Packet) (packets.Packet, error) {
	if t := pk.FixedHeader.Type; t == packets.Subscribe || t == packets.Unsubscribe {
		if cl.State.Inflight.Delete(pk.PacketID) {
			atomic.AddInt64(&h.info.Inflight, -1)
			cl.State.Inflight.IncreaseSendQuota()
		}
	}
	return pk, nil
}
