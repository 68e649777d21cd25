package mqtt

import (
	"fmt"
	"sync"
	"time"
)

const (
	// remembered is how many messages are kept track of: more than the window.
	remembered = 16
	// suspected is for how long a message that nothing acknowledges may be what
	// the broker hung up on.
	suspected = 2 * time.Second
)

// unconfirmedSends remembers the topics and sizes of what was last handed to the
// network. A broker that refuses a message may say so by closing the
// connection and in no other way, so the line about the loss names them.
type unconfirmedSends struct {
	mu          sync.Mutex
	recentSends [remembered]sentMessage
	sendCount   int
}

type sentMessage struct {
	number int // 0: acknowledged, or none
	topic  string
	bytes  int
	qos    QoS
	at     time.Time
}

// add returns the number by which confirm knows m.
func (u *unconfirmedSends) add(m *Message) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sendCount++
	u.recentSends[u.sendCount%remembered] = sentMessage{u.sendCount, m.Topic, len(m.Payload), m.QoS, time.Now()}
	return u.sendCount
}

func (u *unconfirmedSends) confirm(number int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if s := &u.recentSends[number%remembered]; s.number == number {
		*s = sentMessage{}
	}
}

// String names the largest message that may be lost, or the reason for the
// loss, and counts the others. It is empty if there are none.
func (u *unconfirmedSends) String() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	var largest sentMessage
	others := -1
	for _, s := range u.recentSends {
		if s.number == 0 || s.qos == AtMostOnce && time.Since(s.at) > suspected {
			continue
		}
		others++
		if largest.number == 0 || s.bytes > largest.bytes {
			largest = s
		}
	}
	switch {
	case others < 0:
		return ""
	case others == 0:
		return fmt.Sprintf("; unconfirmed: %d bytes to %s", largest.bytes, largest.topic)
	}
	return fmt.Sprintf("; unconfirmed: %d bytes to %s, and %d more", largest.bytes, largest.topic, others)
}
