package mqtt

import (
	"fmt"
	"sync"
	"time"
)

const (
	// rememberedSends is the number of remembered messages. It is larger than maxUnacknowledgedPackets.
	rememberedSends = 16
	// maxSuspectedSendAge is the maximum age at which a QoS 0 message may be the reason why the broker closed the
	// connection.
	maxSuspectedSendAge = 2 * time.Second
)

// unconfirmedSends remembers the topics and sizes of the last sent messages. A broker may refuse a message by closing
// the connection, so the log line about a lost link names these messages.
type unconfirmedSends struct {
	mu             sync.Mutex
	recentSends    [rememberedSends]sentMessage
	lastSendNumber int
}

type sentMessage struct {
	sendNumber   int // number of the message; 0 if this entry is empty or the message was acknowledged
	topic        string
	payloadBytes int
	qos          QoS
	sentAt       time.Time
}

// recordSend records m and returns its number for confirmSend.
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

// String names the largest message that may be lost or may have caused the loss of the connection, and counts the other
// messages. It returns "" if there are none.
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
		return fmt.Sprintf("; not confirmed by the broker: message of %d bytes to %s",
			largest.payloadBytes, largest.topic)
	}
	return fmt.Sprintf("; not confirmed by the broker: message of %d bytes to %s and %d more",
		largest.payloadBytes, largest.topic, others)
}
