package mqtt

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"time"
)

// Session is a Conn to a broker over the network. It reconnects automatically until it is closed. If several URLs are
// configured, they are tried in turn, in an order that is drawn once.
type Session struct {
	options                  Options
	brokerURLs               []*url.URL
	mailbox                  *EventMailbox
	oversizedMessageReporter *oversizedMessageReporter
	cancel                   context.CancelFunc
	done                     chan struct{} // closed when keepConnected has ended
	disconnectRequests       chan time.Duration

	mu            sync.Mutex
	isClosed      bool
	subscriptions subscriptionTable
	link          *brokerLink // open link; nil while disconnected
}

var _ Conn = (*Session)(nil)

// Dial returns a session immediately. The session connects in the background, and again after each loss. Dial fails
// only if the options are invalid. When ctx ends, the session closes.
func Dial(ctx context.Context, options Options) (*Session, error) {
	options = options.withDefaults()
	urls, err := options.validatedURLs()
	if err != nil {
		return nil, err
	}
	options.Rand.Shuffle(len(urls), func(i, j int) { urls[i], urls[j] = urls[j], urls[i] })
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &Session{
		options:                  options,
		brokerURLs:               urls,
		mailbox:                  NewEventMailbox(options.MailboxMessages, options.MailboxBytes),
		oversizedMessageReporter: newOversizedMessageReporter(&options),
		cancel:                   cancel,
		done:                     make(chan struct{}),
		disconnectRequests:       make(chan time.Duration, 1),
	}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	go func() {
		defer stop()
		s.keepConnected(running)
	}()
	return s, nil
}

// Publish implements Conn.
func (s *Session) Publish(m Message) error {
	m.QoS = max(m.QoS, s.options.MinQoS)
	if err := m.Validate(); err != nil {
		return err
	}
	if size := m.packetSize(); size > s.options.MaxPacket {
		return fmt.Errorf("mqtt: topic %s: payload of %d bytes makes a packet of %d bytes, which exceeds the limit "+
			"of %d (MaxPacket)", m.Topic,
			len(m.Payload), size, s.options.MaxPacket)
	}
	if m.queuedBytes() > s.options.OutboxBytes {
		return fmt.Errorf("mqtt: topic %s: payload of %d bytes exceeds the outbox size of %d "+
			"bytes", m.Topic, len(m.Payload),
			s.options.OutboxBytes)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.isClosed:
		return ErrClosed
	case s.link == nil || !s.link.client.IsConnectionOpen():
		return ErrDown
	}
	return s.link.outbox.queueMessage(m)
}

// Subscribe implements Conn.
func (s *Session) Subscribe(qos QoS, filters ...string) {
	qos = max(qos, s.options.MinQoS)
	var wanted []subscription
	for _, filter := range filters {
		if err := CheckSubscriptionFilter(qos, filter); err != nil {
			s.options.Logger.Error("cannot subscribe: " + err.Error())
			s.mailbox.Put(SubscriptionRefused{Filter: filter, SubackCode: SubackFailure})
			continue
		}
		wanted = append(wanted, subscription{filter, qos})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range wanted {
		s.subscriptions.set(w)
	}
	if s.link != nil {
		s.link.subscribe(wanted)
	}
}

// Unsubscribe implements Conn.
func (s *Session) Unsubscribe(filters ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, filter := range filters {
		if s.subscriptions.remove(filter) {
			s.mailbox.Put(SubscriptionRefusalEnded{Filter: filter})
		}
	}
	if s.link != nil {
		s.link.unsubscribe(filters)
	}
}

// DisconnectFor implements Conn.
func (s *Session) DisconnectFor(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == nil {
		return
	}
	select {
	case s.disconnectRequests <- d:
	default:
	}
}

// Events implements Conn.
func (s *Session) Events() <-chan Event { return s.mailbox.Events() }

// Close implements Conn. It takes at most a few seconds, and no time if the link is down.
func (s *Session) Close() error {
	s.mu.Lock()
	s.isClosed = true
	s.mu.Unlock()
	s.cancel()
	<-s.done
	s.mailbox.Close()
	return nil
}

// keepConnected opens links one after another until ctx ends. After a lost link or a failed attempt it tries the next
// URL, because the node at the current URL may be failing.
func (s *Session) keepConnected(ctx context.Context) {
	defer close(s.done)
	wait := reconnectBackoff{rand: s.options.Rand, maxDelay: s.options.MaxReconnectDelay,
		brokerURLCount: len(s.brokerURLs)}
	reports := make([]connectFailureReporter, len(s.brokerURLs))
	away := time.Now() // time of the last loss of a link
	current := s.options
	for at := 0; ; {
		current.renewCredentials()
		options := current
		if len(s.brokerURLs) > 1 && wait.consecutiveFailedAttempts < len(s.brokerURLs) {
			options.ConnectTimeout = min(options.ConnectTimeout, connectAttemptTimeout(options.MinLinkRate))
		}
		var delay time.Duration
		l, err := s.attemptConnect(ctx, &options, s.brokerURLs[at])
		if err == nil {
			s.options.Logger.Info("connected to the broker at " + s.brokerURLs[at].Redacted())
			var pause time.Duration
			pause, err = s.runLink(ctx, l, s.brokerURLs[at])
			if delay = wait.delayAfterLinkLoss(); pause > 0 {
				delay, err = pause, nil
			}
			away = time.Now().Add(pause)
		} else {
			delay = wait.delayAfterFailedAttempt(time.Since(away))
			s.options.OnConnectFailure(err)
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			report := &reports[at]
			where := ""
			if at = (at + 1) % len(s.brokerURLs); len(s.brokerURLs) > 1 {
				where = " at " + s.brokerURLs[at].Redacted()
			}
			report.report(s.options.Logger, err, delay, where)
		}
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// runLink uses a connection until the connection is lost, ctx ends or the owner requests a pause. It returns the reason
// and the length of the requested pause.
func (s *Session) runLink(ctx context.Context, l *brokerLink, u *url.URL) (pause time.Duration, err error) {
	s.mu.Lock()
	l.subscribe(s.subscriptions.all())
	s.link = l
	s.mu.Unlock()
	s.mailbox.Put(LinkUp{})
	l.startSending()

	select {
	case <-l.ended:
	case <-ctx.Done():
		l.flushAndDisconnect(ErrClosed)
	case pause = <-s.disconnectRequests:
		l.flushAndDisconnect(ErrPlannedDisconnect)
	}

	s.mu.Lock()
	s.link = nil
	s.subscriptions.clearRefusals()
	select {
	case <-s.disconnectRequests:
	default:
	}
	s.mu.Unlock()
	for _, m := range l.outbox.endAndTakeUnsentMessages() {
		s.options.ObserveMessage(ObservedMessage{Topic: m.Topic, PayloadBytes: len(m.Payload), IsDropped: true})
	}
	if ctx.Err() != nil {
		return 0, ErrClosed
	}
	s.mailbox.Put(LinkDown{l.endErr})
	return pause, fmt.Errorf("lost the connection to the broker at %s: %s%v", u.Redacted(), describeNetError(l.endErr),
		&l.unconfirmedSends)
}
