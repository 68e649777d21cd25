package mqtt

import "sync"

// maxQueuedSubscriptionChanges bounds the changes of subscriptions that wait to be sent. It is
// far more than a link that works ever queues.
const maxQueuedSubscriptionChanges = 4096

// outboxCommand is one thing for a link's sender to do: a message to publish, or
// subscriptions to subscribe to or to give up.
type outboxCommand struct {
	message            *Message
	subscriptions      []subscription
	unsubscribeFilters []string
}

// outbox is what waits for one link, in order, bounded in messages and bytes.
// It dies with the link: what a lost link did not send is not sent by the
// next one, since by then nobody knows whether it still means anything.
type outbox struct {
	maxMessages, maxBytes int // the bounds
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

// queueMessage returns ErrOutboxFull if m does not fit now, ErrDown after end.
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

// queueSubscriptionChange queues a change of subscriptions. It reports false when far too many
// wait: the link does not work, and the next one starts from the whole table.
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

// closeForNewCommands lets nothing more in; the sender stops when the rest is sent.
func (o *outbox) closeForNewCommands() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.isEnded = true
	o.wakeSender()
}

// endAndTakeUnsentMessages ends the outbox and returns the messages that it still had.
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

// next waits for a command; ok is false after the last, or once stop is closed.
func (o *outbox) awaitNextCommand(stop <-chan struct{}) (c outboxCommand, ok bool) {
	for {
		o.mu.Lock()
		if len(o.queuedCommands) > 0 {
			c = o.queuedCommands[0]
			o.queuedCommands[0] = outboxCommand{} // so that its payload can be collected
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
