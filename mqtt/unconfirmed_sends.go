package mqtt

import (
	"fmt"
	"sync"
	"time"
)

const (
	// rememberedSends is how many messages are kept track of: more than the window.
	rememberedSends = 16
	// maxSuspectedSendAge is for how long a message that nothing acknowledges may be what
	// the broker hung up on.
	maxSuspectedSendAge = 2 * time.Second
)

// unconfirmedSends remembers the topics and sizes of what was last handed to the
// network. A broker that refuses a message may say so by closing the
// connection and in no other way, so the line about the loss names them.
type unconfirmedSends struct {
	mu             sync.Mutex
	recentSends    [rememberedSends]sentMessage
	lastSendNumber int
}

type sentMessage struct {
	sendNumber   int // 0: acknowledged, or none
	topic        string
	payloadBytes int
	qos          QoS
	sentAt       time.Time
}

// recordSend returns the number by which confirm knows m.
func (u *unconfirmedSends) recordSend(m *Message) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.lastSendNumber++
	u.recentSends[u.lastSendNumber%rememberedSends] = sentMessage{u.lastSendNumber, m.Topic, len(m.Payload), m.QoS,
		time.Now()}
	return u.lastSendNumber
}

func (u *unconfirmedSends) confirmSend(number int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if s := &u.recentSends[number%rememberedSends]; s.sendNumber == number {
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
		if s.sendNumber == 0 || s.qos == AtMostOnce && time.Since(s.sentAt) > maxSuspectedSendAge {
			continue
		}
		others++
		if largest.sendNumber == 0 || s.payloadBytes > largest.payloadBytes {
			largest = s
		}
	}
	switch {
	case others < 0:
		return ""
	case others == 0:
		return fmt.Sprintf("; unconfirmed: %d bytes to %s", largest.payloadBytes, largest.topic)
	}
	return fmt.Sprintf("; unconfirmed: %d bytes to %s, and %d more", largest.payloadBytes, largest.topic, others)
}
