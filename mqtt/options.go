package mqtt

import (
	cryptorand "crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// Options configures the connection to a broker. URL and ClientID are required; all other fields have defaults.
type Options struct {
	// URL is the broker's URL, scheme://host:port. The scheme is tcp, mqtt, tls, ssl, mqtts, or ws or wss with a path.
	// The port is optional only for ws and wss.
	URL string
	// MoreURLs are further nodes of the same cluster. A session uses one URL at a time. If the connection fails, the
	// session tries the next URL. The order of the URLs is drawn once from Rand.
	MoreURLs []string
	// ClientID must be unique: a broker closes the older of two connections with the same client id.
	ClientID string
	// Username and Password are the broker credentials; both may be empty.
	Username, Password string
	// TLS configures connections with the schemes tls, ssl, mqtts and wss. If it is nil, the system's root certificates
	// are trusted and TLS 1.3 is required.
	TLS *tls.Config
	// RenewCredentials, if set, returns the current Password and TLS before each attempt, because keys and certificates
	// may change during a session. After an error the previous values are used.
	RenewCredentials func() (password string, encryption *tls.Config, err error)
	// CertificateCheckTime returns the time at which the broker's certificate must be valid. The default is time.Now.
	CertificateCheckTime func() time.Time
	// Proxy is the http://host:port of a proxy. The session requests a tunnel to the broker from it with CONNECT, for
	// all schemes of URL. A user in the URL is sent as basic authentication, in clear text. Nil means no proxy: the
	// environment is ignored.
	Proxy *url.URL

	// MinQoS is the minimum quality of service of all messages and subscriptions, including the will. The default is
	// AtMostOnce.
	MinQoS QoS
	// MinLinkRate is the minimum rate of the link in bytes per second. The default is DefaultMinLinkRate.
	MinLinkRate int
	// KeepAlive is the keepalive interval in whole seconds, by default 60 s. It is also the timeout of an
	// acknowledgement. Half of it is the timeout of a PINGRESP.
	KeepAlive time.Duration
	// ConnectTimeout is the timeout of one connection attempt, by default 10 s. With several URLs the timeout is
	// shorter until every URL has been tried once.
	ConnectTimeout time.Duration
	// WriteTimeout is the timeout for sending one message, after which the link is closed. The default is four times
	// the send time of the largest message at MinLinkRate, and at least 20 s.
	WriteTimeout time.Duration
	// MaxReconnectDelay is the maximum delay between attempts, by default 60 s.
	MaxReconnectDelay time.Duration
	// MaxPacket is the maximum size in bytes of an MQTT packet in either direction, by default 131072. It includes
	// topic and framing. A larger incoming message is dropped, and acknowledged if its QoS is 1. A larger packet of any
	// other type ends the link.
	MaxPacket int

	// Will, if set, returns the will (last-will message) for the next connection attempt, which the broker publishes if
	// the link is lost. A message with an empty topic means no will. Will must not block.
	Will func() Message

	// MailboxMessages and MailboxBytes limit the mailbox of received events (by default 1024 and 8 MiB). OutboxMessages
	// and OutboxBytes limit the outbox of unsent messages (by default 512 and 8 MiB).
	MailboxMessages, MailboxBytes int
	OutboxMessages, OutboxBytes   int

	// ObserveMessage, if set, is called once for each message that was sent, received or dropped. It is called
	// concurrently and must not block.
	ObserveMessage func(ObservedMessage)
	// Meter, if set, counts the bytes of all attempts and links.
	Meter *TrafficMeter
	// Rand is the source of random delays between attempts. By default it is seeded by the system.
	Rand *rand.Rand
	// OnConnectFailure, if set, is called with the error of each failed attempt, which is [ErrRefused] if the broker
	// refused the connection. It must not block.
	OnConnectFailure func(error)
	// Logger receives messages about opened, lost and failed connections. Nil discards them.
	Logger *slog.Logger
}

// ObservedMessage describes one message for Options.ObserveMessage. An incoming message is dropped if the mailbox is
// full or the message exceeds ExceededSizeLimit. An outgoing message is dropped if the link closed before it was
// written (QoS 0) or acknowledged (QoS 1). It may still have arrived, and it is never sent again.
type ObservedMessage struct {
	IsIncoming   bool
	Topic        string
	PayloadBytes int
	IsDropped    bool
	// ExceededSizeLimit is Options.MaxPacket if the message was dropped because it exceeded MaxPacket, and otherwise 0.
	ExceededSizeLimit int
	// OversizedPacketSize is the packet length of the message if it exceeded ExceededSizeLimit, and otherwise 0.
	OversizedPacketSize int
}

func (o Options) withDefaults() Options {
	setDefaultDuration(&o.KeepAlive, time.Minute)
	setDefaultDuration(&o.ConnectTimeout, 10*time.Second)
	setDefaultInt(&o.MinLinkRate, DefaultMinLinkRate)
	setDefaultDuration(&o.WriteTimeout, max(20*time.Second, 4*maxMessageSendTime(max(o.MinLinkRate, 1))))
	setDefaultDuration(&o.MaxReconnectDelay, time.Minute)
	setDefaultInt(&o.MaxPacket, 128<<10)
	setDefaultInt(&o.MailboxMessages, 1024)
	setDefaultInt(&o.MailboxBytes, 8<<20)
	setDefaultInt(&o.OutboxMessages, 512)
	setDefaultInt(&o.OutboxBytes, 8<<20)
	if o.ObserveMessage == nil {
		o.ObserveMessage = func(ObservedMessage) {}
	}
	if o.OnConnectFailure == nil {
		o.OnConnectFailure = func(error) {}
	}
	if o.Rand == nil {
		var seed [32]byte
		_, _ = cryptorand.Read(seed[:])
		o.Rand = rand.New(rand.NewChaCha8(seed))
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// renewCredentials updates the password and the TLS configuration from RenewCredentials.
func (o *Options) renewCredentials() {
	if o.RenewCredentials == nil {
		return
	}
	password, encryption, err := o.RenewCredentials()
	if err != nil {
		o.Logger.Warn("cannot reload the broker credentials; the previous ones stay in use",
			"err", err)
		return
	}
	o.Password, o.TLS = password, encryption
}

func (o *Options) tlsConfig() *tls.Config {
	config := o.TLS.Clone()
	if config == nil {
		config = defaultTLSConfig.Clone()
	}
	if o.CertificateCheckTime != nil {
		config.Time = o.CertificateCheckTime
	}
	return config
}

func setDefaultDuration(d *time.Duration, otherwise time.Duration) {
	if *d == 0 {
		*d = otherwise
	}
}

func setDefaultInt(n *int, otherwise int) {
	if *n == 0 {
		*n = otherwise
	}
}

// Validate returns the error that Dial would return for invalid options. It needs no broker.
func (o Options) Validate() error {
	_, err := o.withDefaults().validatedURLs()
	return err
}

// validatedURLs validates options with their defaults applied, and returns the broker's URLs.
func (o Options) validatedURLs() ([]*url.URL, error) {
	urls, err := parseBrokerURLs(append([]string{o.URL}, o.MoreURLs...))
	if err != nil {
		return nil, err
	}
	switch {
	case o.TLS != nil && !usesTLS(urls[0]):
		err = fmt.Errorf("mqtt: TLS is configured but %s:// is not encrypted: use tls:// or wss://",
			urls[0].Scheme)
	case o.ClientID == "":
		err = errors.New("mqtt: client id is empty: set a unique client id")
	case checkMQTTString(o.ClientID) != nil:
		err = fmt.Errorf("mqtt: client id %.64q: %w", o.ClientID, checkMQTTString(o.ClientID))
	case o.Username == "" && o.Password != "":
		err = errors.New("mqtt: password is set without a user name: set both")
	case o.KeepAlive%time.Second != 0 || o.KeepAlive < time.Second || o.KeepAlive > 65535*time.Second:
		err = fmt.Errorf("mqtt: keepalive is %v: must be whole seconds from 1s to 65535s", o.KeepAlive)
	case o.ConnectTimeout < 0 || o.WriteTimeout < 0 || o.MaxReconnectDelay < 0:
		err = errors.New("mqtt: connect timeout, write timeout and maximum reconnect delay must not be negative")
	case min(o.MailboxMessages, o.MailboxBytes, o.OutboxMessages, o.OutboxBytes) < 0:
		err = errors.New("mqtt: the limits of mailbox and outbox must not be negative")
	case o.MinLinkRate < 0:
		err = fmt.Errorf("mqtt: minimum link rate is %d bytes per second: must not be negative", o.MinLinkRate)
	case o.MinQoS > AtLeastOnce:
		err = fmt.Errorf("mqtt: minimum QoS is %d: must be 0 or 1", o.MinQoS)
	case o.MaxPacket < 0:
		err = fmt.Errorf("mqtt: maximum packet size is %d bytes: must not be negative", o.MaxPacket)
	default:
		err = checkProxyURL(o.Proxy)
	}
	return urls, err
}

// parseBrokerURLs parses the URLs of the nodes of one cluster.
func parseBrokerURLs(list []string) ([]*url.URL, error) {
	var urls []*url.URL
	for _, s := range list {
		u, err := parseBrokerURL(s)
		if err != nil {
			return nil, err
		}
		switch {
		case slices.ContainsFunc(urls, func(other *url.URL) bool { return *other == *u }):
			return nil, fmt.Errorf("mqtt: duplicate broker URL %q: remove one", u.Redacted())
		case len(urls) > 0 && usesTLS(u) != usesTLS(urls[0]):
			return nil, fmt.Errorf("mqtt: broker URL %q: cannot mix encrypted and unencrypted URLs: use tls:// or "+
				"wss:// for all or for none", u.Redacted())
		}
		urls = append(urls, u)
	}
	return urls, nil
}

func parseBrokerURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil || u.Hostname() == "" {
		return nil, fmt.Errorf("mqtt: broker URL %q is not scheme://host:port, such as tcp://127.0.0.1:1883",
			redactedURL(u, s))
	}
	if !hasValidPort(u) {
		return nil, fmt.Errorf("mqtt: broker URL %q: port is %s: must be 1 to 65535", redactedURL(u, s), u.Port())
	}
	switch u.Scheme {
	case "tcp", "mqtt", "tls", "ssl", "mqtts":
		if u.Port() == "" {
			return nil, fmt.Errorf("mqtt: broker URL %q has no port: add one, usually 1883, or 8883 for TLS",
				redactedURL(u, s))
		}
	case "ws", "wss":
	default:
		return nil, fmt.Errorf("mqtt: broker URL %q: unknown scheme %q: use tcp, mqtt, tls, ssl, mqtts, ws or wss",
			redactedURL(u, s), u.Scheme)
	}
	if u.User != nil {
		return nil, fmt.Errorf("mqtt: broker URL %q contains credentials: set user name and password separately",
			u.Redacted())
	}
	return u, nil
}

// hasValidPort reports whether a URL has a port from 1 to 65535, or none.
func hasValidPort(u *url.URL) bool {
	n, err := strconv.ParseUint(u.Port(), 10, 16)
	return u.Port() == "" || err == nil && n > 0
}

// redactedURL returns u without its password, for error texts. If s is not a URL, u is nil and only the length of s is
// returned.
func redactedURL(u *url.URL, s string) string {
	if u == nil {
		return fmt.Sprintf("(%d bytes)", len(s))
	}
	return u.Redacted()
}

func usesTLS(u *url.URL) bool {
	switch u.Scheme {
	case "tls", "ssl", "mqtts", "wss":
		return true
	}
	return false
}
