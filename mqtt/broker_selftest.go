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

// SelfTestReport says how a self-test ended, and of how many bytes its large message
// is, also where it was denied before that was sent.
type SelfTestReport struct {
	Result            SelfTestResult
	Topic             string
	LargeMessageBytes int
}

// Problem says what the broker does with messages; it is empty if the test passed.
func (r SelfTestReport) Problem() string {
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
func (r SelfTestReport) Remedy() string {
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

// BrokerSelfTest checks that a broker accepts and delivers the largest message that its client will send. Brokers
// acknowledge and drop messages that their access rules or size limits forbid, and give no other sign. The client
// publishes to a testTopic that only it reads: a few bytes first and, after they have come back and a random time has
// passed, one large message. A test that has passed is not repeated. One that has failed is repeated on a new link
// after at least an hour, or on the same link after minDeniedRetryDelay if few bytes did not return. The owner calls
// Step with every event of the connection, and Tick at the Deadline. A nil BrokerSelfTest tests nothing.
type BrokerSelfTest struct {
	conn                 Conn
	testTopic            string
	messageReturnTimeout time.Duration
	rand                 *rand.Rand

	stage                   selfTestStage
	nonce                   []byte // begins the messages of this link
	hasPassed               bool
	sendAttempts            int
	subscribeDenials        int // refusals of the topic by this link
	linksLostOnLargeMessage int // links in a row that were lost soon after the large message was sent
	messageSentAt           time.Time
	nextActionAt            time.Time // the deadline, zero for none
	nextTestAt              time.Time // the earliest start of the next test

	hasOtherMessageArrived bool          // a message on another topic has arrived over this link
	deniedRetryDelay       time.Duration // the last time from a denial to the next test; 0 = none was denied
}

type selfTestStage uint8

const (
	selfTestIdle         selfTestStage = iota // no link, or no need
	selfTestSendingSmall                      // the few bytes are due, or under way
	selfTestWaiting                           // until the large message is due
	selfTestSendingLarge                      // the large message is due, or under way
)

// NewBrokerSelfTest makes a self-test. Each message has the time patience to come back. The large one is sent after a
// random part of half that time, since all devices reconnect together after a power cut.
func NewBrokerSelfTest(conn Conn, topic string, patience time.Duration, rng *rand.Rand) *BrokerSelfTest {
	return &BrokerSelfTest{conn: conn, testTopic: topic, messageReturnTimeout: patience, rand: rng}
}

// Deadline returns when the test wants a Tick, if nothing comes before.
func (t *BrokerSelfTest) Deadline() (time.Time, bool) {
	if t == nil {
		return time.Time{}, false
	}
	return t.nextActionAt, !t.nextActionAt.IsZero()
}

// Step takes an event of the connection. It reports whether the event concerns the test only, and the result if the
// event ends the test.
func (t *BrokerSelfTest) Step(now time.Time, e Event) (own bool, ended *SelfTestReport) {
	if t == nil {
		return false, nil
	}
	switch e := e.(type) {
	case LinkUp:
		t.startUnlessTestedRecently(now)
	case LinkDown:
		return false, t.handleLinkDown(now)
	case SubscriptionRefused:
		if e.Filter == t.testTopic {
			return true, t.handleSubscriptionRefusal(now)
		}
	case SubscriptionRefusalEnded:
		return e.Filter == t.testTopic, nil
	case MessageReceived:
		if e.Topic == t.testTopic {
			return true, t.handleReturnedMessage(now, e.Payload)
		}
		t.hasOtherMessageArrived = true
	}
	return false, nil
}

// startUnlessTestedRecently starts a test, unless one has passed or failed not long ago.
func (t *BrokerSelfTest) startUnlessTestedRecently(now time.Time) {
	t.hasOtherMessageArrived = false
	if t.hasPassed {
		return
	}
	t.beginTest(now)
	if t.nextTestAt.After(now) {
		t.nextActionAt = t.nextTestAt
	}
}

// start subscribes to the topic and makes the few bytes due.
func (t *BrokerSelfTest) beginTest(now time.Time) {
	t.conn.Subscribe(AtMostOnce, t.testTopic)
	t.nonce = binary.LittleEndian.AppendUint64(nil, t.rand.Uint64())
	t.stage, t.sendAttempts, t.subscribeDenials, t.nextActionAt = selfTestSendingSmall, 0, 0, now
}

// handleSubscriptionRefusal takes a refusal of the topic. A node of a cluster that has lost its peers may refuse once;
// the connection asks again, and the second refusal ends the test.
func (t *BrokerSelfTest) handleSubscriptionRefusal(now time.Time) (ended *SelfTestReport) {
	if t.subscribeDenials++; t.stage == selfTestIdle || t.subscribeDenials < maxSelfTestAttempts {
		return nil
	}
	return t.endTest(now, SelfTestDenied)
}

// handleLinkDown takes the loss of the link. If the large message is soon followed by a loss, on maxSelfTestAttempts
// links in a row, it is the cause.
func (t *BrokerSelfTest) handleLinkDown(now time.Time) (ended *SelfTestReport) {
	if t.stage == selfTestSendingLarge && t.sendAttempts > 0 {
		if t.linksLostOnLargeMessage++; now.Sub(t.messageSentAt) >= t.messageReturnTimeout/8 {
			t.linksLostOnLargeMessage = 0
		}
		if t.linksLostOnLargeMessage >= maxSelfTestAttempts {
			return t.endTest(now, SelfTestDisconnected)
		}
	}
	t.stage, t.nextActionAt = selfTestIdle, time.Time{}
	return nil
}

// Tick does what is due, and returns the result if the test ends.
func (t *BrokerSelfTest) Tick(now time.Time) (ended *SelfTestReport) {
	if t == nil || t.nextActionAt.IsZero() || now.Before(t.nextActionAt) {
		return nil
	}
	switch t.stage {
	case selfTestIdle:
		t.beginTest(now)
	case selfTestWaiting:
		t.stage, t.sendAttempts = selfTestSendingLarge, 0
	case selfTestSendingSmall, selfTestSendingLarge:
	}
	switch {
	case t.sendAttempts < maxSelfTestAttempts:
		t.sendTestMessage(now)
		return nil
	case t.stage == selfTestSendingSmall && t.hasOtherMessageArrived &&
		now.Sub(t.messageSentAt) < t.messageReturnTimeout:
		t.nextActionAt = t.messageSentAt.Add(t.messageReturnTimeout) // it may wait in a queue, behind what arrives
		return nil
	case t.stage == selfTestSendingSmall:
		ended = t.endTest(now, SelfTestDenied)
		t.deniedRetryDelay = min(max(minDeniedRetryDelay, 2*t.deniedRetryDelay), maxDeniedRetryDelay)
		t.nextTestAt = now.Add(t.deniedRetryDelay)
		t.nextActionAt = t.nextTestAt
		return ended
	}
	return t.endTest(now, SelfTestSwallowed)
}

// sendTestMessage publishes the message of the present stage.
func (t *BrokerSelfTest) sendTestMessage(now time.Time) {
	payload := bytes.Clone(t.nonce)
	if t.stage == selfTestSendingLarge {
		payload = make([]byte, largeTestMessageBytes)
		copy(payload, t.nonce)
	}
	if err := t.conn.Publish(Message{Topic: t.testTopic, Payload: payload, QoS: AtMostOnce}); err != nil {
		t.nextActionAt = now.Add(outboxFullRetryDelay) // busy, or down: a Down event follows
		return
	}
	t.sendAttempts++
	wait := t.messageReturnTimeout
	if t.stage == selfTestSendingSmall && !t.hasOtherMessageArrived {
		wait = min(wait, smallMessageReplyTimeout)
	}
	t.messageSentAt, t.nextActionAt = now, now.Add(wait)
}

// handleReturnedMessage takes a message that came back.
func (t *BrokerSelfTest) handleReturnedMessage(now time.Time, payload []byte) (ended *SelfTestReport) {
	if t.stage == selfTestIdle {
		return nil
	}
	switch {
	case !bytes.HasPrefix(payload, t.nonce): // of another link, or of a device with the same name
	case len(payload) == largeTestMessageBytes:
		return t.endTest(now, SelfTestPassed)
	case t.stage == selfTestSendingSmall:
		t.stage, t.nextActionAt = selfTestWaiting,
			now.Add(time.Duration(t.rand.Int64N(int64(t.messageReturnTimeout)/2)))
	}
	return nil
}

func (t *BrokerSelfTest) endTest(now time.Time, result SelfTestResult) *SelfTestReport {
	t.conn.Unsubscribe(t.testTopic)
	t.stage, t.linksLostOnLargeMessage, t.nextActionAt, t.nextTestAt = selfTestIdle, 0, time.Time{},
		now.Add(selfTestRetryInterval)
	t.hasPassed = result == SelfTestPassed
	return &SelfTestReport{Result: result, Topic: t.testTopic, LargeMessageBytes: largeTestMessageBytes}
}
