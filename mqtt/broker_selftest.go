package mqtt

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

const (
	// largeTestMessageBytes is the payload of the large message: a chunk, and more than the difference between the
	// topics' lengths.
	largeTestMessageBytes = wire.MaxChunkBytes + wire.ChunkHeaderSize + 64
	// maxSelfTestAttempts is how often a message is sent without a return, and how many links in a row the large one
	// may cost, before the test fails.
	maxSelfTestAttempts = 2
	// selfTestRetryInterval is the least time between a test that failed and the next.
	selfTestRetryInterval = time.Hour
	// outboxFullRetryDelay is the wait while the connection's outbox is full.
	outboxFullRetryDelay = time.Second
	// smallMessageReplyTimeout is the timeout of the few bytes on a link over which no other message has arrived. On
	// such a link no queue delays them, so access rules are the likely cause.
	smallMessageReplyTimeout = 10 * time.Second
	// minDeniedRetryDelay is the time until a test is repeated on the same link after few bytes were lost. It doubles
	// up to maxDeniedRetryDelay. Rules that are loaded in the meantime apply to existing links.
	minDeniedRetryDelay = 30 * time.Second
	maxDeniedRetryDelay = 5 * time.Minute
)

// AccessRulesRemedy is the remedy for access rules that withhold messages from a user of the federation.
const AccessRulesRemedy = "load the federation's access rules (Mosquitto: copy the file of the coordinator's key " +
	"enrol.acl, or the output of `coordinator acl`, to its acl_file, and run `systemctl reload mosquitto`)"

// SelfTestResult is how a self-test ended. It is a metric's label.
type SelfTestResult string

// The results of a self-test.
const (
	SelfTestPassed       SelfTestResult = "passed"
	SelfTestDenied       SelfTestResult = "denied"       // not even a few bytes came back
	SelfTestSwallowed    SelfTestResult = "swallowed"    // a few bytes came back, the large message did not
	SelfTestDisconnected SelfTestResult = "disconnected" // the broker hung up on the large message
)

// SelfTestResults returns all results, for closed label sets.
func SelfTestResults() []SelfTestResult {
	return []SelfTestResult{SelfTestPassed, SelfTestDenied, SelfTestSwallowed, SelfTestDisconnected}
}

// SelfTestOutcome says how a self-test ended, and of how many bytes its large message
// is, also where it was denied before that was sent.
type SelfTestOutcome struct {
	Result            SelfTestResult
	Topic             string
	LargeMessageBytes int
}

// Problem says what the broker does with messages; it is empty if the test passed.
func (r SelfTestOutcome) Problem() string {
	switch r.Result {
	case SelfTestDenied:
		return fmt.Sprintf("the broker's access rules withhold messages from this user: a test message to %s did not "+
			"come back", r.Topic)
	case SelfTestSwallowed:
		return fmt.Sprintf("the broker silently drops messages of %d bytes, so no larger model or update arrives",
			r.LargeMessageBytes)
	case SelfTestDisconnected:
		return fmt.Sprintf("the broker disconnects on messages of %d bytes, so no larger model or update arrives",
			r.LargeMessageBytes)
	}
	return ""
}

// Remedy says what to change at the broker; it is empty if the test passed.
func (r SelfTestOutcome) Remedy() string {
	switch r.Result {
	case SelfTestDenied:
		return fmt.Sprintf("%s; they must have `topic readwrite %s` for this user", AccessRulesRemedy, r.Topic)
	case SelfTestSwallowed:
		return "let it accept messages of 131072 bytes (Mosquitto: remove message_size_limit, and set " +
			"max_packet_size 131072)"
	case SelfTestDisconnected:
		return "let it accept messages of 131072 bytes (Mosquitto: set max_packet_size 131072)"
	}
	return ""
}

// SelfTest checks that a broker accepts and delivers the largest message that its client will send. Brokers acknowledge
// and drop messages that their access rules or size limits forbid, and give no other sign. The client publishes to a
// topic that only it reads: a few bytes first and, after they have come back and a random time has passed, one large
// message. A test that has passed is not repeated. One that has failed is repeated on a new link after at least an
// hour, or on the same link after minDeniedRetryDelay if few bytes did not return. The owner calls Step with every
// event of the connection, and Tick at the Deadline. A nil SelfTest tests nothing.
type SelfTest struct {
	conn         Conn
	topic        string
	replyTimeout time.Duration
	rand         *rand.Rand

	stage                 selfTestStage
	nonce                 []byte // begins the messages of this link
	passed                bool
	sendAttempts          int
	subscribeDenials      int // refusals of the topic by this link
	consecutiveLinkLosses int // links in a row that were lost soon after the large message was sent
	sentAt                time.Time
	deadline              time.Time // the deadline, zero for none
	nextTestAt            time.Time // the earliest start of the next test

	otherMessageArrived bool          // a message on another topic has arrived over this link
	deniedRetryDelay    time.Duration // the last time from a denial to the next test; 0 = none was denied
}

type selfTestStage uint8

const (
	selfTestIdle         selfTestStage = iota // no link, or no need
	selfTestSendingSmall                      // the few bytes are due, or under way
	selfTestWaiting                           // until the large message is due
	selfTestSendingLarge                      // the large message is due, or under way
)

// NewSelfTest makes a self-test. Each message has the time patience to come back. The large one is sent after a random
// part of half that time, since all devices reconnect together after a power cut.
func NewSelfTest(conn Conn, topic string, patience time.Duration, rng *rand.Rand) *SelfTest {
	return &SelfTest{conn: conn, topic: topic, replyTimeout: patience, rand: rng}
}

// Deadline returns when the test wants a Tick, if nothing comes before.
func (t *SelfTest) Deadline() (time.Time, bool) {
	if t == nil {
		return time.Time{}, false
	}
	return t.deadline, !t.deadline.IsZero()
}

// Step takes an event of the connection. It reports whether the event concerns the test only, and the result if the
// event ends the test.
func (t *SelfTest) Step(now time.Time, e Event) (own bool, ended *SelfTestOutcome) {
	if t == nil {
		return false, nil
	}
	switch e := e.(type) {
	case LinkUp:
		t.startUnlessRecent(now)
	case LinkDown:
		return false, t.handleLinkDown(now)
	case SubscriptionRefused:
		if e.Filter == t.topic {
			return true, t.handleDenial(now)
		}
	case SubscriptionRefusalEnded:
		return e.Filter == t.topic, nil
	case MessageReceived:
		if e.Topic == t.topic {
			return true, t.handleReply(now, e.Payload)
		}
		t.otherMessageArrived = true
	}
	return false, nil
}

// startUnlessRecent starts a test, unless one has passed or failed not long ago.
func (t *SelfTest) startUnlessRecent(now time.Time) {
	t.otherMessageArrived = false
	if t.passed {
		return
	}
	t.start(now)
	if t.nextTestAt.After(now) {
		t.deadline = t.nextTestAt
	}
}

// start subscribes to the topic and makes the few bytes due.
func (t *SelfTest) start(now time.Time) {
	t.conn.Subscribe(AtMostOnce, t.topic)
	t.nonce = binary.LittleEndian.AppendUint64(nil, t.rand.Uint64())
	t.stage, t.sendAttempts, t.subscribeDenials, t.deadline = selfTestSendingSmall, 0, 0, now
}

// handleDenial takes a refusal of the topic. A node of a cluster that has lost its peers may refuse once; the
// connection asks again, and the second refusal ends the test.
func (t *SelfTest) handleDenial(now time.Time) (ended *SelfTestOutcome) {
	if t.subscribeDenials++; t.stage == selfTestIdle || t.subscribeDenials < maxSelfTestAttempts {
		return nil
	}
	return t.end(now, SelfTestDenied)
}

// handleLinkDown takes the loss of the link. If the large message is soon followed by a loss, on maxSelfTestAttempts
// links in a row, it is the cause.
func (t *SelfTest) handleLinkDown(now time.Time) (ended *SelfTestOutcome) {
	if t.stage == selfTestSendingLarge && t.sendAttempts > 0 {
		if t.consecutiveLinkLosses++; now.Sub(t.sentAt) >= t.replyTimeout/8 {
			t.consecutiveLinkLosses = 0
		}
		if t.consecutiveLinkLosses >= maxSelfTestAttempts {
			return t.end(now, SelfTestDisconnected)
		}
	}
	t.stage, t.deadline = selfTestIdle, time.Time{}
	return nil
}

// Tick does what is due, and returns the result if the test ends.
func (t *SelfTest) Tick(now time.Time) (ended *SelfTestOutcome) {
	if t == nil || t.deadline.IsZero() || now.Before(t.deadline) {
		return nil
	}
	switch t.stage {
	case selfTestIdle:
		t.start(now)
	case selfTestWaiting:
		t.stage, t.sendAttempts = selfTestSendingLarge, 0
	case selfTestSendingSmall, selfTestSendingLarge:
	}
	switch {
	case t.sendAttempts < maxSelfTestAttempts:
		t.send(now)
		return nil
	case t.stage == selfTestSendingSmall && t.otherMessageArrived && now.Sub(t.sentAt) < t.replyTimeout:
		t.deadline = t.sentAt.Add(t.replyTimeout) // it may wait in a queue, behind what arrives
		return nil
	case t.stage == selfTestSendingSmall:
		ended = t.end(now, SelfTestDenied)
		t.deniedRetryDelay = min(max(minDeniedRetryDelay, 2*t.deniedRetryDelay), maxDeniedRetryDelay)
		t.nextTestAt = now.Add(t.deniedRetryDelay)
		t.deadline = t.nextTestAt
		return ended
	}
	return t.end(now, SelfTestSwallowed)
}

// send publishes the message of the present stage.
func (t *SelfTest) send(now time.Time) {
	payload := bytes.Clone(t.nonce)
	if t.stage == selfTestSendingLarge {
		payload = make([]byte, largeTestMessageBytes)
		copy(payload, t.nonce)
	}
	if err := t.conn.Publish(Message{Topic: t.topic, Payload: payload, QoS: AtMostOnce}); err != nil {
		t.deadline = now.Add(outboxFullRetryDelay) // busy, or down: a Down event follows
		return
	}
	t.sendAttempts++
	wait := t.replyTimeout
	if t.stage == selfTestSendingSmall && !t.otherMessageArrived {
		wait = min(wait, smallMessageReplyTimeout)
	}
	t.sentAt, t.deadline = now, now.Add(wait)
}

// handleReply takes a message that came back.
func (t *SelfTest) handleReply(now time.Time, payload []byte) (ended *SelfTestOutcome) {
	if t.stage == selfTestIdle {
		return nil
	}
	switch {
	case !bytes.HasPrefix(payload, t.nonce): // of another link, or of a device with the same name
	case len(payload) == largeTestMessageBytes:
		return t.end(now, SelfTestPassed)
	case t.stage == selfTestSendingSmall:
		t.stage, t.deadline = selfTestWaiting, now.Add(time.Duration(t.rand.Int64N(int64(t.replyTimeout)/2)))
	}
	return nil
}

func (t *SelfTest) end(now time.Time, result SelfTestResult) *SelfTestOutcome {
	t.conn.Unsubscribe(t.topic)
	t.stage, t.consecutiveLinkLosses, t.deadline, t.nextTestAt = selfTestIdle, 0, time.Time{},
		now.Add(selfTestRetryInterval)
	t.passed = result == SelfTestPassed
	return &SelfTestOutcome{Result: result, Topic: t.topic, LargeMessageBytes: largeTestMessageBytes}
}
