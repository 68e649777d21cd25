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
	// largeTestMessageBytes is the payload size of the large test message. It is the size of the largest chunk message
	// plus an allowance for longer topics.
	largeTestMessageBytes = wire.MaxChunkBytes + wire.ChunkHeaderSize + 64
	// maxSelfTestAttempts is the number of failures at which the test fails: lost test messages, or consecutive links
	// lost soon after the large message.
	maxSelfTestAttempts = 2
	// selfTestRetryInterval is the minimum time between a failed test and the next test.
	selfTestRetryInterval = time.Hour
	// outboxFullRetryDelay is the retry delay when the connection's outbox is full.
	outboxFullRetryDelay = time.Second
	// smallMessageReplyTimeout is the timeout of the small test message if no other message has arrived on the link. On
	// such a link no queue delays the message, so access rules are the likely cause of its loss.
	smallMessageReplyTimeout = 10 * time.Second
	// minDeniedRetryDelay is the delay before the test is first repeated on the same link after the small message was
	// lost. The delay doubles up to maxDeniedRetryDelay. The test is repeated because newly loaded access rules also
	// apply to existing links.
	minDeniedRetryDelay = 30 * time.Second
	maxDeniedRetryDelay = 5 * time.Minute
)

// AccessRulesRemedy is the remedy for access rules that withhold messages from a user of the federation.
const AccessRulesRemedy = "load the federation's access rules into the broker (Mosquitto: copy the file set in the " +
	"coordinator's enrol.acl, or the output of `coordinator acl`, to its acl_file, and run `systemctl reload " +
	"mosquitto`)"

// SelfTestResult is the result of a self-test of the broker. Metrics use it as a label value.
type SelfTestResult string

// Results of a self-test.
const (
	SelfTestPassed       SelfTestResult = "passed"
	SelfTestDenied       SelfTestResult = "denied"       // the small message did not return
	SelfTestSwallowed    SelfTestResult = "swallowed"    // the small message returned, but the large one did not
	SelfTestDisconnected SelfTestResult = "disconnected" // the broker disconnected after the large message
)

// SelfTestResults returns all possible results of a self-test.
func SelfTestResults() []SelfTestResult {
	return []SelfTestResult{SelfTestPassed, SelfTestDenied, SelfTestSwallowed, SelfTestDisconnected}
}

// SelfTestReport holds the result of a self-test. LargeMessageBytes is set even if the test was denied before the large
// message was sent.
type SelfTestReport struct {
	Result            SelfTestResult
	Topic             string
	LargeMessageBytes int
}

// Problem describes how the broker loses messages. It returns "" if the test passed.
func (r SelfTestReport) Problem() string {
	switch r.Result {
	case SelfTestDenied:
		return fmt.Sprintf("the broker's access rules block messages to this user: a test message to %s did not "+
			"return", r.Topic)
	case SelfTestSwallowed:
		return fmt.Sprintf("the broker silently drops messages of %d bytes, so large models and updates do not arrive",
			r.LargeMessageBytes)
	case SelfTestDisconnected:
		return fmt.Sprintf("the broker closes the connection on messages of %d bytes, so large models and updates do "+
			"not arrive",
			r.LargeMessageBytes)
	}
	return ""
}

// Remedy describes the required change of the broker's configuration. It returns "" if the test passed.
func (r SelfTestReport) Remedy() string {
	switch r.Result {
	case SelfTestDenied:
		return fmt.Sprintf("%s; the rules must contain `topic readwrite %s` for this user", AccessRulesRemedy, r.Topic)
	case SelfTestSwallowed:
		return "configure the broker to accept messages of 131072 bytes (Mosquitto: remove message_size_limit and " +
			"set max_packet_size 131072)"
	case SelfTestDisconnected:
		return "configure the broker to accept messages of 131072 bytes (Mosquitto: set max_packet_size 131072)"
	}
	return ""
}

// BrokerSelfTest checks that a broker accepts and delivers the largest message that the client will send. The test is
// necessary because brokers may acknowledge a message and then silently drop it because of access rules or size limits.
//
// The client publishes to a testTopic that no other client reads. It first sends a small message. After the small
// message has returned and a random delay has passed, it sends one large message. A passed test is not repeated. A
// failed test is repeated on a new link after at least an hour. If the small message was lost, the test is also
// repeated on the same link after minDeniedRetryDelay.
//
// The owner calls Step with every event of the connection, and Tick at the Deadline. A nil BrokerSelfTest has no
// effect.
type BrokerSelfTest struct {
	conn                 Conn
	testTopic            string
	messageReturnTimeout time.Duration
	rand                 *rand.Rand

	stage                   selfTestStage
	nonce                   []byte // random prefix of the test messages on this link
	hasPassed               bool
	sendAttempts            int
	subscribeDenials        int // number of times the broker refused the subscription to the test topic on this link
	linksLostOnLargeMessage int // consecutive links lost soon after the large message
	messageSentAt           time.Time
	nextActionAt            time.Time // time at which Tick must be called next; zero if no call is needed
	nextTestAt              time.Time

	hasOtherMessageArrived bool // whether a message on another topic has arrived on this link
	// deniedRetryDelay is the previous retry delay after the small message was lost; 0 if it has not been lost yet.
	deniedRetryDelay time.Duration
}

type selfTestStage uint8

const (
	selfTestIdle         selfTestStage = iota // no link, or no test needed
	selfTestSendingSmall                      // small message is due or in flight
	selfTestWaiting                           // waiting before the large message is sent
	selfTestSendingLarge                      // large message is due or in flight
)

// NewBrokerSelfTest returns a self-test that waits up to patience for each message to return. It sends the large
// message after a random delay of up to patience/2, because after a power cut all devices reconnect together.
func NewBrokerSelfTest(conn Conn, topic string, patience time.Duration, rng *rand.Rand) *BrokerSelfTest {
	return &BrokerSelfTest{conn: conn, testTopic: topic, messageReturnTimeout: patience, rand: rng}
}

// Deadline returns the time at which Tick must be called next. It reports false if no call is needed.
func (t *BrokerSelfTest) Deadline() (time.Time, bool) {
	if t == nil {
		return time.Time{}, false
	}
	return t.nextActionAt, !t.nextActionAt.IsZero()
}

// Step processes an event of the connection. own reports whether the event concerns only the self-test, and ended is
// the result if the event ends the test.
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

// beginTest subscribes to the test topic and schedules the small message.
func (t *BrokerSelfTest) beginTest(now time.Time) {
	t.conn.Subscribe(AtMostOnce, t.testTopic)
	t.nonce = binary.LittleEndian.AppendUint64(nil, t.rand.Uint64())
	t.stage, t.sendAttempts, t.subscribeDenials, t.nextActionAt = selfTestSendingSmall, 0, 0, now
}

// handleSubscriptionRefusal handles the broker's refusal to subscribe to the test topic. Only a second refusal ends the
// test, because a cluster node that cannot reach the other nodes may refuse once.
func (t *BrokerSelfTest) handleSubscriptionRefusal(now time.Time) (ended *SelfTestReport) {
	if t.subscribeDenials++; t.stage == selfTestIdle || t.subscribeDenials < maxSelfTestAttempts {
		return nil
	}
	return t.endTest(now, SelfTestDenied)
}

// handleLinkDown handles the loss of the link. If maxSelfTestAttempts consecutive links are lost soon after the large
// message, the test fails, because the large message is the likely cause.
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

// Tick performs the actions that are due. It returns the result if the test ends.
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
		t.nextActionAt = t.messageSentAt.Add(t.messageReturnTimeout)
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

// sendTestMessage publishes the test message of the current stage.
func (t *BrokerSelfTest) sendTestMessage(now time.Time) {
	payload := bytes.Clone(t.nonce)
	if t.stage == selfTestSendingLarge {
		payload = make([]byte, largeTestMessageBytes)
		copy(payload, t.nonce)
	}
	if err := t.conn.Publish(Message{Topic: t.testTopic, Payload: payload, QoS: AtMostOnce}); err != nil {
		t.nextActionAt = now.Add(outboxFullRetryDelay)
		return
	}
	t.sendAttempts++
	wait := t.messageReturnTimeout
	if t.stage == selfTestSendingSmall && !t.hasOtherMessageArrived {
		wait = min(wait, smallMessageReplyTimeout)
	}
	t.messageSentAt, t.nextActionAt = now, now.Add(wait)
}

func (t *BrokerSelfTest) handleReturnedMessage(now time.Time, payload []byte) (ended *SelfTestReport) {
	if t.stage == selfTestIdle {
		return nil
	}
	switch {
	case !bytes.HasPrefix(payload, t.nonce):
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
