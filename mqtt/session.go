package mqtt

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"
)

// Session is a Conn to a broker over the network. It connects by itself,
// again and again, until it is closed.
type Session struct {
	options Options
	url     *url.URL
	mailbox *Mailbox
	cancel  context.CancelFunc
	done    chan struct{} // closed when run has ended
	pauses  chan time.Duration

	mu     sync.Mutex
	closed bool
	table  table
	link   *link // nil while down
}

var _ Conn = (*Session)(nil)

// Dial returns at once, with a session that tries to connect until it
// succeeds, and again after each loss. The only errors are options that can
// never work. The end of ctx closes the session as Close does.
func Dial(ctx context.Context, options Options) (*Session, error) {
	options = options.withDefaults()
	u, err := options.parse()
	if err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &Session{
		options: options,
		url:     u,
		mailbox: NewMailbox(options.MailboxMessages, options.MailboxBytes),
		cancel:  cancel,
		done:    make(chan struct{}),
		pauses:  make(chan time.Duration, 1),
	}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	go func() {
		defer stop()
		s.run(running)
	}()
	return s, nil
}

// Publish implements Conn.
func (s *Session) Publish(m Message) error {
	if err := m.Validate(); err != nil {
		return err
	}
	if size := m.packetSize(); size > s.options.MaxPacket {
		return fmt.Errorf("mqtt: topic %s: %d bytes of payload make a packet of %d, more than %d (MaxPacket)", m.Topic, len(m.Payload), size, s.options.MaxPacket)
	}
	if m.size() > s.options.OutboxBytes {
		return fmt.Errorf("mqtt: topic %s: %d bytes of payload never fit in an outbox of %d", m.Topic, len(m.Payload), s.options.OutboxBytes)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return ErrClosed
	case s.link == nil || !s.link.client.IsConnectionOpen():
		return ErrDown
	}
	return s.link.out.publish(m)
}

// Subscribe implements Conn.
func (s *Session) Subscribe(qos QoS, filters ...string) {
	var wanted []subscription
	for _, filter := range filters {
		if err := CheckSubscription(qos, filter); err != nil {
			s.options.Logger.Error("a subscription is not possible: " + err.Error())
			s.mailbox.Put(SubscribeRefused{Filter: filter, Code: Refused})
			continue
		}
		wanted = append(wanted, subscription{filter, qos})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range wanted {
		s.table.set(w)
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
		s.table.remove(filter)
	}
	if s.link != nil {
		s.link.unsubscribe(filters)
	}
}

// Pause implements Conn.
func (s *Session) Pause(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == nil {
		return
	}
	select {
	case s.pauses <- d:
	default: // one is about to begin
	}
}

// Events implements Conn.
func (s *Session) Events() <-chan Event { return s.mailbox.Events() }

// Close implements Conn. It takes at most a few seconds, and no time if the
// link is down.
func (s *Session) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	<-s.done
	s.mailbox.Close()
	return nil
}

// run makes one link after the other until ctx ends.
func (s *Session) run(ctx context.Context) {
	defer close(s.done)
	wait := backoff{rand: s.options.Rand, longest: s.options.MaxReconnectDelay}
	wait.reset(firstDelay)
	report := reporter{logger: s.options.Logger}
	for {
		var pause time.Duration
		l, err := connect(ctx, &s.options, s.url, s.mailbox)
		if err == nil {
			s.options.Logger.Info("connected to the broker at " + s.url.Redacted())
			pause, err = s.serve(ctx, l)
			wait.reset(herdDelay)
		}
		if ctx.Err() != nil {
			return
		}
		delay := pause
		if pause == 0 {
			delay = wait.next()
			report.failure(err, delay)
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

// serve runs an open link until it is lost, which is the error, or ctx ends,
// or the owner wants a pause.
func (s *Session) serve(ctx context.Context, l *link) (pause time.Duration, err error) {
	s.mu.Lock()
	for batch := range slices.Chunk(s.table.entries, maxFilters) {
		l.subscribe(slices.Clone(batch))
	}
	s.link = l
	s.mu.Unlock()
	s.mailbox.Put(Up{})
	l.start()

	select {
	case <-l.lost:
	case <-ctx.Done():
		l.flush(ErrClosed)
	case pause = <-s.pauses:
		l.flush(ErrPaused)
	}

	s.mu.Lock()
	s.link = nil
	select {
	case <-s.pauses: // for a link that was lost meanwhile
	default:
	}
	s.mu.Unlock()
	for _, m := range l.out.drop() {
		s.options.Observe(Traffic{Topic: m.Topic, Bytes: len(m.Payload), Dropped: true})
	}
	if ctx.Err() != nil {
		return 0, ErrClosed
	}
	s.mailbox.Put(Down{l.err})
	return pause, fmt.Errorf("lost the broker at %s: %s%v", s.url.Redacted(), plain(l.err), &l.underway)
}
