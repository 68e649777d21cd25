package memory

import (
	"container/heap"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
)

// delivery is a message that will be delivered to one connection at time due.
type delivery struct {
	due      time.Time
	seq      uint64 // sequence number that orders deliveries with the same due time
	conn     *Conn
	cutCount uint64 // value of conn.cutCount when the message was sent
	message  mqtt.Message
}

// schedule is a heap of deliveries, ordered by due time and sequence number. schedule implements heap.Interface.
type schedule struct {
	seq  uint64
	heap []delivery
}

func (s *schedule) Len() int { return len(s.heap) }
func (s *schedule) Less(i, j int) bool {
	a, b := s.heap[i], s.heap[j]
	return a.due.Before(b.due) || a.due.Equal(b.due) && a.seq < b.seq
}
func (s *schedule) Swap(i, j int) { s.heap[i], s.heap[j] = s.heap[j], s.heap[i] }
func (s *schedule) Push(x any)    { s.heap = append(s.heap, x.(delivery)) }
func (s *schedule) Pop() any {
	last := s.heap[len(s.heap)-1]
	s.heap = s.heap[:len(s.heap)-1]
	return last
}

// scheduleDelivery schedules the delivery of a message after the given delay. It keeps the order of messages to the
// same connection.
func (b *Broker) scheduleDelivery(c *Conn, m mqtt.Message, delay time.Duration) {
	due := time.Now().Add(delay)
	if due.Before(c.lastDue) {
		due = c.lastDue
	}
	c.lastDue = due
	c.messagesInFlight++
	b.delayed.seq++
	heap.Push(&b.delayed, delivery{due: due, seq: b.delayed.seq, conn: c, cutCount: c.cutCount, message: m})
	if !b.running {
		b.running = true
		go b.runDeliveries()
		return
	}
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// runDeliveries delivers messages when they are due. runDeliveries returns when no scheduled delivery is left.
func (b *Broker) runDeliveries() {
	for {
		wait, ok := b.deliverDue()
		if !ok {
			return
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-b.wake: // A new delivery was scheduled; it may be due earlier.
			timer.Stop()
		}
	}
}

func (b *Broker) deliverDue() (wait time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.delayed.heap) > 0 {
		if wait = time.Until(b.delayed.heap[0].due); wait > 0 {
			return wait, true
		}
		d := heap.Pop(&b.delayed).(delivery)
		if d.conn.cutCount != d.cutCount {
			continue
		}
		d.conn.messagesInFlight--
		if d.conn.up {
			d.conn.mailbox.Put(mqtt.MessageReceived{Message: d.message})
		}
	}
	b.running = false
	return 0, false
}
