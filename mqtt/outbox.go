package mqtt

import "sync"

// maxQueuedSubscriptionChanges is the maximum number of queued subscription changes. A working link never queues nearly
// as many.
const maxQueuedSubscriptionChanges = 4096

// outboxCommand is a command for the sender of a link: publish a message, subscribe or unsubscribe.
type outboxCommand struct {
	message            *Message
	subscriptions      []subscription
	unsubscribeFilters []string
}

// outbox is the send queue of one link, in order of the calls, bounded in messages and bytes. Commands that were not
// sent are discarded when the link ends, because they may be obsolete when the next link opens.
type outbox struct {
	maxMessages, maxBytes int // limits on queued messages and their bytes
	senderWake            chan struct{}

	mu                        sync.Mutex
	queuedCommands            []outboxCommand
	heldMessages              int
	heldBytes                 int
	queuedSubscriptionChanges int
	isEnded                   bool
}

func newOutbox(messages, bytes int) *outbox {
	return &outbox{maxMessages: messages, maxBytes: bytes, senderWake: make(chan struct{}, 1)}
}

// queueMessage queues a message. It returns ErrOutboxFull if the outbox is full, or ErrDown if it has ended.
func (o *outbox) queueMessage(m Message) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.isEnded:
		return ErrDown
	case o.heldMessages+1 > o.maxMessages || o.heldBytes+m.queuedBytes() > o.maxBytes:
		return ErrOutboxFull
	}
	o.heldMessages++
	o.heldBytes += m.queuedBytes()
	o.enqueueCommand(outboxCommand{message: &m})
	return nil
}

// queueSubscriptionChange queues a change of subscriptions. It reports false if too many changes are queued. In this
// case the link is broken, and the next link sends the whole subscription table.
func (o *outbox) queueSubscriptionChange(c outboxCommand) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.isEnded {
		return true
	}
	if o.queuedSubscriptionChanges >= maxQueuedSubscriptionChanges {
		return false
	}
	o.queuedSubscriptionChanges++
	o.enqueueCommand(c)
	return true
}

func (o *outbox) enqueueCommand(c outboxCommand) {
	o.queuedCommands = append(o.queuedCommands, c)
	o.wakeSender()
}

func (o *outbox) wakeSender() {
	select {
	case o.senderWake <- struct{}{}:
	default:
	}
}

// closeForNewCommands rejects new commands. Commands that are already queued are still sent.
func (o *outbox) closeForNewCommands() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.isEnded = true
	o.wakeSender()
}

func (o *outbox) endAndTakeUnsentMessages() []Message {
	o.mu.Lock()
	defer o.mu.Unlock()
	var dropped []Message
	for _, c := range o.queuedCommands {
		if c.message != nil {
			dropped = append(dropped, *c.message)
		}
	}
	o.isEnded = true
	o.queuedCommands = nil
	o.wakeSender()
	return dropped
}

// awaitNextCommand waits for the next command. It returns ok = false after the last command, or when stop is closed.
func (o *outbox) awaitNextCommand(stop <-chan struct{}) (c outboxCommand, ok bool) {
	for {
		o.mu.Lock()
		if len(o.queuedCommands) > 0 {
			c = o.queuedCommands[0]
			o.queuedCommands[0] = outboxCommand{} // release the payload for garbage collection
			o.queuedCommands = o.queuedCommands[1:]
			if c.message != nil {
				o.heldMessages--
				o.heldBytes -= c.message.queuedBytes()
			} else {
				o.queuedSubscriptionChanges--
			}
			o.mu.Unlock()
			return c, true
		}
		ended := o.isEnded
		o.mu.Unlock()
		if ended {
			return c, false
		}
		select {
		case <-o.senderWake:
		case <-stop:
			return c, false
		}
	}
}
