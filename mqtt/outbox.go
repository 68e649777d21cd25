package mqtt

import "sync"

// maxChanges bounds the changes of subscriptions that wait to be sent. It is
// far more than a link that works ever queues.
const maxChanges = 4096

// outboxCommand is one thing for a link's sender to do: a message to publish, or
// filters to subscribe to or to give up.
type outboxCommand struct {
	message     *Message
	subscribe   []subscription
	unsubscribe []string
}

// outbox is what waits for one link, in order, bounded in messages and bytes.
// It dies with the link: what a lost link did not send is not sent by the
// next one, since by then nobody knows whether it still means anything.
type outbox struct {
	maxMessages, maxBytes int // the bounds
	wake                  chan struct{}

	mu            sync.Mutex
	queue         []outboxCommand
	heldMessages  int
	heldBytes     int
	queuedChanges int
	ended         bool
}

func newOutbox(messages, bytes int) *outbox {
	return &outbox{maxMessages: messages, maxBytes: bytes, wake: make(chan struct{}, 1)}
}

// publish returns ErrBusy if m does not fit now, ErrDown after end.
func (o *outbox) publish(m Message) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.ended:
		return ErrDown
	case o.heldMessages+1 > o.maxMessages || o.heldBytes+m.size() > o.maxBytes:
		return ErrBusy
	}
	o.heldMessages++
	o.heldBytes += m.size()
	o.add(outboxCommand{message: &m})
	return nil
}

// change queues a change of subscriptions. It reports false when far too many
// wait: the link does not work, and the next one starts from the whole table.
func (o *outbox) change(c outboxCommand) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return true
	}
	if o.queuedChanges >= maxChanges {
		return false
	}
	o.queuedChanges++
	o.add(c)
	return true
}

func (o *outbox) add(c outboxCommand) {
	o.queue = append(o.queue, c)
	o.signal()
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// end lets nothing more in; the sender stops when the rest is sent.
func (o *outbox) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	o.signal()
}

// endAndTakeMessages ends the outbox and returns the messages that it still had.
func (o *outbox) endAndTakeMessages() []Message {
	o.mu.Lock()
	defer o.mu.Unlock()
	var dropped []Message
	for _, c := range o.queue {
		if c.message != nil {
			dropped = append(dropped, *c.message)
		}
	}
	o.ended = true
	o.queue = nil
	o.signal()
	return dropped
}

// next waits for a command; ok is false after the last, or once stop is closed.
func (o *outbox) next(stop <-chan struct{}) (c outboxCommand, ok bool) {
	for {
		o.mu.Lock()
		if len(o.queue) > 0 {
			c = o.queue[0]
			o.queue[0] = outboxCommand{} // so that its payload can be collected
			o.queue = o.queue[1:]
			if c.message != nil {
				o.heldMessages--
				o.heldBytes -= c.message.size()
			} else {
				o.queuedChanges--
			}
			o.mu.Unlock()
			return c, true
		}
		ended := o.ended
		o.mu.Unlock()
		if ended {
			return c, false
		}
		select {
		case <-o.wake:
		case <-stop:
			return c, false
		}
	}
}
