package mqtt

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	paho "github.com/eclipse/paho.mqtt.golang"
	"github.com/eclipse/paho.mqtt.golang/packets"
)

// attemptConnect makes one attempt to connect. It returns at the connect timeout or when ctx ends.
func (s *Session) attemptConnect(ctx context.Context, options *Options, u *url.URL) (*brokerLink, error) {
	l := &brokerLink{
		options:            options,
		mailbox:            s.mailbox,
		onSuback:           s.handleSuback,
		onOversizedMessage: s.oversizedMessageReporter.report,
		outbox:             newOutbox(options.OutboxMessages, options.OutboxBytes),
		pendingAcks:        make(chan pendingAck, maxUnacknowledgedPackets),
		flushed:            make(chan struct{}),
		ended:              make(chan struct{}),
	}
	l.client = paho.NewClient(l.pahoClientOptions(ctx, u))
	stop := context.AfterFunc(ctx, func() { l.abort(ErrClosed) })
	defer stop()
	token := l.client.Connect()
	if !token.WaitTimeout(2*options.ConnectTimeout + time.Second) {
		err := fmt.Errorf("connecting to the broker at %s timed out", u.Redacted())
		l.abort(err)
		return nil, err
	}
	if token.Error() != nil {
		return nil, l.explainConnectError(token.Error(), u)
	}
	return l, nil
}

func (l *brokerLink) pahoClientOptions(ctx context.Context, u *url.URL) *paho.ClientOptions {
	o := paho.NewClientOptions().
		AddBroker(u.String()).
		SetClientID(l.options.ClientID).
		SetUsername(l.options.Username).
		SetPassword(l.options.Password).
		SetProtocolVersion(4). // If no version is set, paho repeats each refused CONNECT with MQTT 3.1.
		SetCleanSession(true).
		SetAutoReconnect(false).
		SetConnectRetry(false).
		SetStore(discardingPahoStore{}).
		SetKeepAlive(l.options.KeepAlive).
		SetPingTimeout(l.options.KeepAlive / 2).
		SetConnectTimeout(l.options.ConnectTimeout).
		SetWriteTimeout(l.options.WriteTimeout).
		SetConnectionLostHandler(func(_ paho.Client, err error) { l.recordEnd(err) })
	if l.options.Will != nil {
		if will := l.options.Will(); will.Topic != "" {
			o.SetBinaryWill(will.Topic, will.Payload, byte(max(will.QoS, l.options.MinQoS)), will.Retained)
		}
	}
	o.SetCustomOpenConnectionFn(func(u *url.URL, _ paho.ClientOptions) (net.Conn, error) {
		conn, err := openConn(ctx, u, l.options)
		if err != nil {
			l.dialErr = err
			return nil, err
		}
		wrapped := newLinkConn(conn, l.options, l.queueReceivedMessage, l.onOversizedMessage)
		l.conn.Store(wrapped)
		if ctx.Err() != nil {
			wrapped.abort(ErrClosed)
		}
		return wrapped, nil
	})
	return o
}

// explainConnectError returns an error that explains why an attempt failed.
func (l *brokerLink) explainConnectError(err error, u *url.URL) error {
	where := u.Redacted()
	if l.options.Proxy != nil {
		where += " through the proxy at " + l.options.Proxy.Host
	}
	var bad error
	if conn := l.conn.Load(); conn != nil && conn.abortReason.Load() != nil {
		bad = *conn.abortReason.Load()
	}
	switch {
	case bad != nil:
		return fmt.Errorf("the broker at %s did not answer CONNECT: %w", where, bad)
	case l.dialErr != nil:
		return fmt.Errorf("cannot reach the broker at %s: %s", where, describeNetError(l.dialErr))
	case !errors.Is(err, packets.ErrorNetworkError):
		return connectRefusal{fmt.Errorf("the broker at %s refused client id %s: %w", where, l.options.ClientID, err)}
	}
	return fmt.Errorf("the broker at %s did not answer CONNECT: %s", where, describeNetError(err))
}

// ErrRefused reports that the broker refused the user name, the password or the client id of a CONNECT.
var ErrRefused = errors.New("the broker refused the connection")

// connectRefusal is an error that matches ErrRefused and wraps the broker's reason.
type connectRefusal struct{ error }

func (connectRefusal) Is(target error) bool { return target == ErrRefused }
func (r connectRefusal) Unwrap() error      { return r.error }

// discardingPahoStore is a paho store that discards all packets. With clean sessions and one client per link, paho
// never reads its store, and a real store would keep payloads without limit.
type discardingPahoStore struct{}

func (discardingPahoStore) Open()                             {}
func (discardingPahoStore) Put(string, packets.ControlPacket) {}
func (discardingPahoStore) Get(string) packets.ControlPacket  { return nil }
func (discardingPahoStore) All() []string                     { return nil }
func (discardingPahoStore) Del(string)                        {}
func (discardingPahoStore) Close()                            {}
func (discardingPahoStore) Reset()                            {}
