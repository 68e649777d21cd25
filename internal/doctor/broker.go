package doctor

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/internal/logging"
	"github.com/fedmesh/fedmesh/mqtt"
)

// BrokerTarget describes how a daemon uses a broker.
type BrokerTarget struct {
	Options           mqtt.Options
	SubscribedFilters []string // topic filters that the daemon subscribes to
	SelfTestTopic     string   // topic that only this daemon may write and read
	// PresenceTopic is the topic of the will message that the daemon registers. PresenceTopic is empty if the daemon
	// has no will.
	PresenceTopic string
	// NeedsRetainedMessages is true if the broker must retain messages that the daemon publishes.
	NeedsRetainedMessages bool
	// WantedQueueLength is the number of messages that the broker should queue for a slow reader. If it is 0, the
	// doctor does not check the queue length.
	WantedQueueLength int
}

const (
	// answerTimeout is the time limit for each reply of the broker.
	answerTimeout = 10 * time.Second
	// selfTestTimeout is the time limit for the self-test, including reconnects.
	selfTestTimeout = 6 * answerTimeout
	// clientIDClashThreshold is a number of consecutive connections that ended within answerTimeout. From this number
	// on, the doctor concludes that another client uses the same client id.
	clientIDClashThreshold = 2
)

// targetPerURL returns one target for each URL of the broker.
func (b *BrokerTarget) targetPerURL() []*BrokerTarget {
	var all []*BrokerTarget
	for _, u := range append([]string{b.Options.URL}, b.Options.MoreURLs...) {
		node := *b
		node.Options.URL, node.Options.MoreURLs = u, nil
		all = append(all, &node)
	}
	return all
}

// checkTCPConnection checks whether the broker accepts a TCP connection. checkTCPConnection sends no data.
func (b *BrokerTarget) checkTCPConnection(ctx context.Context, r *findingReporter) bool {
	u, err := url.Parse(b.Options.URL)
	if err != nil {
		r.addFinding("network", Bad, "correct broker.url", "%v", err)
		return false
	}
	to, what := u, "the broker"
	if b.Options.Proxy != nil {
		to, what = b.Options.Proxy, "the proxy"
	}
	port := to.Port()
	if port == "" {
		port = map[string]string{"ws": "80", "wss": "443", "http": "80"}[to.Scheme]
	}
	d := net.Dialer{Timeout: answerTimeout}
	began := time.Now()
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(to.Hostname(), port))
	if err != nil {
		mend := "check the broker's host name and the system's name server (on Android, set the key dns)"
		if !strings.Contains(err.Error(), "lookup") {
			mend = "check that the broker is running, that it listens on this address (Mosquitto listens only on " +
				"loopback unless its configuration contains `listener 1883`), and that no firewall blocks the " +
				"connection"
		}
		r.addFinding("network", Bad, mend, "cannot connect to %s: %v", what, err)
		return false
	}
	switch u.Scheme {
	case "tls", "ssl", "mqtts", "wss":
		if b.Options.Proxy == nil {
			b.tlsHandshakeAndClose(ctx, conn, u.Hostname())
		}
	}
	_ = conn.Close() // ignore the error, because no data was sent
	r.addGoodFinding("network", "connected to %s at %s after %v", what, conn.RemoteAddr(),
		time.Since(began).Round(100*time.Microsecond))
	local, remote := addrPort(conn.LocalAddr()), addrPort(conn.RemoteAddr())
	if b.Options.Proxy == nil && local.IsValid() && remote.IsValid() {
		thisMachine.checkMosquitto(ctx, r, local, remote)
	}
	return true
}

// tlsHandshakeAndClose completes a TLS handshake and closes the connection properly, because brokers log a connection
// without a handshake as an error. It ignores a failed handshake, which the check of the MQTT session reports later.
func (b *BrokerTarget) tlsHandshakeAndClose(ctx context.Context, conn net.Conn, host string) {
	config := &tls.Config{}
	if b.Options.TLS != nil {
		config = b.Options.TLS.Clone()
	}
	if config.ServerName == "" {
		config.ServerName = host
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	secure := tls.Client(conn, config)
	if secure.HandshakeContext(ctx) != nil || secure.CloseWrite() != nil {
		return
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Second))
	// wait until the broker has closed the connection too, because unread bytes would reset it
	_, _ = io.Copy(io.Discard, secure)
}

type brokerSession struct {
	*BrokerTarget
	report                *findingReporter
	conn                  *mqtt.Session
	events                <-chan mqtt.Event
	retainedTopics        map[string]bool
	refusedFilters        []string
	linkUpAt              time.Time // time at which the link was established
	consecutiveShortLinks int       // number of consecutive links shorter than answerTimeout
}

func (v *brokerSession) recordEvent(e mqtt.Event) {
	switch e := e.(type) {
	case mqtt.LinkUp:
		v.linkUpAt = time.Now()
	case mqtt.LinkDown:
		if v.consecutiveShortLinks++; time.Since(v.linkUpAt) >= answerTimeout {
			v.consecutiveShortLinks = 0
		}
	case mqtt.SubscriptionRefused:
		// Record a filter only once, because the session retries refused subscriptions.
		if !slices.Contains(v.refusedFilters, e.Filter) {
			v.refusedFilters = append(v.refusedFilters, e.Filter)
		}
	case mqtt.SubscriptionRefusalEnded:
		v.refusedFilters = slices.DeleteFunc(v.refusedFilters, func(filter string) bool { return filter == e.Filter })
	case mqtt.MessageReceived:
		v.retainedTopics[e.Topic] = v.retainedTopics[e.Topic] || e.Retained
	}
}

// checkMQTTSession runs the checks that need an MQTT session, using the daemon's client id. It reports whether the
// session was still connected at the end.
func (b *BrokerTarget) checkMQTTSession(ctx context.Context, r *findingReporter) bool {
	taken := b.watchDisplacedClientWill(ctx)
	v := b.openSession(ctx, r)
	if v != nil {
		defer v.conn.Close()
	}
	if another := taken(); v == nil {
		return false
	} else if another {
		v.reportClientIDClash("if this device lost its connection less than two minutes ago, run the check again; "+
			"otherwise find the other client: ",
			"was connected with the client id %s, and the broker closed that connection when this check connected",
			v.Options.ClientID)
		return false
	}
	if !v.checkLargeMessageRoundTrip(ctx) {
		return false
	}
	v.reportRefusedFilters("allow the user of this program to read the topic; `coordinator acl` writes the rules for " +
		"Mosquitto")
	if len(v.refusedFilters) == 0 {
		r.addGoodFinding("access",
			"all subscriptions accepted; note that Mosquitto accepts every subscription and silently drops messages "+
				"without read access")
	}
	v.checkRetained(ctx)
	return true
}

// openSession opens a session and subscribes. If the broker rejects the client, it adds a finding and returns nil.
func (b *BrokerTarget) openSession(ctx context.Context, r *findingReporter) *brokerSession {
	warning := new(logging.LastWarningHandler)
	o := b.Options
	o.Logger = slog.New(warning)
	o.MaxReconnectDelay = time.Second // a short delay, because a single client needs no jitter
	conn, err := mqtt.Dial(ctx, o)
	if err != nil {
		r.addFinding("connection", Bad, "correct the configuration", "%v", err)
		return nil
	}
	v := &brokerSession{BrokerTarget: b, report: r, conn: conn, events: conn.Events(),
		retainedTopics: map[string]bool{}}
	conn.Subscribe(mqtt.AtMostOnce, b.SubscribedFilters...)
	if !v.awaitEvent(ctx, answerTimeout, func(e mqtt.Event) bool { _, up := e.(mqtt.LinkUp); return up }) {
		r.addFinding("connection", Bad, "check the user name, password, certificate and CA in the configuration, and "+
			"see the broker's log",
			"%s", warning.LastTextOr("no reply"))
		_ = conn.Close() // ignore the error, because no data was sent
		return nil
	}
	r.addGoodFinding("connection", "the broker accepted the connection with the client id %s", b.Options.ClientID)
	return v
}

// reportRefusedFilters adds a finding for each filter that the broker refuses.
func (v *brokerSession) reportRefusedFilters(mend string) {
	for _, filter := range v.refusedFilters {
		v.report.addFinding("access", Bad, mend, "the broker rejected the subscription to %s", filter)
	}
}

// awaitEvent records session events until right returns true for an event, or until the duration within has passed.
// awaitEvent reports whether right returned true.
func (v *brokerSession) awaitEvent(ctx context.Context, within time.Duration, right func(mqtt.Event) bool) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return false
		case e := <-v.events:
			v.recordEvent(e)
			if right(e) {
				return true
			}
		}
	}
}

// checkLargeMessageRoundTrip publishes a large message and waits until the broker returns it.
// checkLargeMessageRoundTrip reports whether the check was conclusive.
func (v *brokerSession) checkLargeMessageRoundTrip(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, selfTestTimeout)
	defer cancel()
	test := mqtt.NewBrokerSelfTest(v.conn, v.SelfTestTopic, answerTimeout,
		rand.New(rand.NewPCG(uint64(time.Now().UnixNano()),
			0)))
	test.Step(time.Now(), mqtt.LinkUp{})
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		var result *mqtt.SelfTestReport
		select {
		case <-ctx.Done():
			v.report.addFinding("messages", Bad, "see the broker's log, and run the check again",
				"the test with a message of the maximum size did not finish within %v: %v", selfTestTimeout, ctx.Err())
			return false
		case e := <-v.events:
			v.recordEvent(e)
			_, result = test.Step(time.Now(), e)
			if result == nil && v.consecutiveShortLinks >= clientIDClashThreshold {
				v.reportClientIDClash("find the other client: ",
					"uses the client id %s: the broker closed %d connections in a row, each within %v",
					v.Options.ClientID, v.consecutiveShortLinks, answerTimeout)
				return false
			}
		case <-tick.C:
			if at, due := test.Deadline(); due && !time.Now().Before(at) {
				result = test.Tick(time.Now())
			}
		}
		if result == nil {
			continue
		}
		if result.Result != mqtt.SelfTestPassed {
			v.report.addFinding("messages", Bad, result.Remedy(), "%s", result.Problem())
		} else {
			v.report.addGoodFinding("messages", "received a test message of %d bytes on %s", result.LargeMessageBytes,
				result.Topic)
		}
		return true
	}
}

// reportClientIDClash adds a finding that another client uses the same client id.
func (v *brokerSession) reportClientIDClash(find, found string, args ...any) {
	v.report.addFinding("identity", Bad,
		find+"it may be the same program with another state_dir, a copy of this device, or `fedlab fleet`; stop that "+
			"client, or give it its own id and key", "another client "+found, args...)
}

// willDeliveryTime is the maximum time from the end of a connection to the delivery of its will.
const willDeliveryTime = time.Second

// watchDisplacedClientWill detects another client with the daemon's client id. It opens a second connection, with a
// different id, that watches for the will message of such a client. The caller then connects with the daemon's id and
// calls taken. taken ends the watch and reports whether the broker disconnected another client.
//
// Retained wills are ignored, because they may be old. The check detects nothing if the broker rejects the second
// connection or derives client ids from user names.
func (b *BrokerTarget) watchDisplacedClientWill(ctx context.Context) (taken func() bool) {
	if b.PresenceTopic == "" {
		return func() bool { return false }
	}
	o := b.Options
	o.ClientID, o.Logger = o.ClientID+"-check", slog.New(slog.DiscardHandler)
	conn, err := mqtt.Dial(ctx, o)
	if err != nil {
		return func() bool { return false }
	}
	v := &brokerSession{BrokerTarget: b, conn: conn, events: conn.Events(), retainedTopics: map[string]bool{}}
	conn.Subscribe(mqtt.AtMostOnce, b.PresenceTopic, b.SelfTestTopic)
	isUp := func(e mqtt.Event) bool { _, up := e.(mqtt.LinkUp); return up }
	if v.awaitEvent(ctx, answerTimeout, isUp) {
		// The message returns after the broker has processed the subscriptions. If the access rules withhold it, it
		// never returns.
		_ = conn.Publish(mqtt.Message{Topic: b.SelfTestTopic, QoS: mqtt.AtMostOnce, Payload: []byte("check")})
		v.awaitEvent(ctx, willDeliveryTime, func(e mqtt.Event) bool {
			m, ok := e.(mqtt.MessageReceived)
			return ok && m.Topic == b.SelfTestTopic
		})
	}
	return func() bool {
		defer conn.Close()
		will := false
		v.awaitEvent(ctx, willDeliveryTime, func(e mqtt.Event) bool {
			switch e := e.(type) {
			case mqtt.MessageReceived:
				will = e.Topic == b.PresenceTopic && !e.Retained
			case mqtt.LinkDown: // the broker gave this connection the doctor's client id, so it must not reconnect
				return true
			}
			return will
		})
		return will
	}
}

// checkRetained checks whether the broker stores retained messages.
func (v *brokerSession) checkRetained(ctx context.Context) {
	if !v.NeedsRetainedMessages {
		return
	}
	text := fmt.Sprint("doctor ", time.Now().UnixNano())
	err := v.conn.Publish(mqtt.Message{Topic: v.SelfTestTopic, Payload: []byte(text), QoS: mqtt.AtMostOnce,
		Retained: true})
	if err != nil {
		v.report.addFinding("retained", Bad, "try again", "%v", err)
		return
	}
	v.conn.Subscribe(mqtt.AtMostOnce, v.SelfTestTopic) // subscribe again, because the self-test has unsubscribed
	if v.awaitEvent(ctx, answerTimeout, func(e mqtt.Event) bool {
		m, ok := e.(mqtt.MessageReceived)
		return ok && string(m.Payload) == text && m.Retained
	}) {
		v.report.addGoodFinding("retained", "the broker keeps retained messages")
	} else {
		v.report.addFinding("retained", Bad, "enable retained messages, with which models are distributed "+
			"(Mosquitto: retain_available true, the default)", "the broker did not keep a retained message")
	}
	// Remove the retained message. If this fails, the next run of the doctor overwrites the message.
	_ = v.conn.Publish(mqtt.Message{Topic: v.SelfTestTopic, QoS: mqtt.AtMostOnce, Retained: true})
}
