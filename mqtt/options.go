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

// Options says how to reach a broker. URL and ClientID are needed, the rest
// has defaults.
type Options struct {
	// URL is scheme://host:port: tcp or mqtt, tls, ssl or mqtts, and ws or wss
	// with a path. The port may be left out only with ws and wss.
	URL string
	// MoreURLs are further nodes of the same cluster. A session uses one URL at a time and goes to the next one when it
	// fails, in an order that Rand draws once.
	MoreURLs []string
	// ClientID must be unique: a broker closes the older of two connections with the same one.
	ClientID string
	// Username and Password may be empty.
	Username, Password string
	// TLS is for tls, ssl, mqtts and wss; nil trusts the system's roots, and wants TLS 1.3.
	TLS *tls.Config
	// RenewCredentials, if set, returns Password and TLS anew before each attempt: keys and certificates are changed
	// while a session lives. After an error the last ones are used.
	RenewCredentials func() (password string, encryption *tls.Config, err error)
	// CertificateCheckTime is the time at which the broker's certificate must count; time.Now unless set.
	CertificateCheckTime func() time.Time
	// Proxy is an http://host:port that is asked with CONNECT for a tunnel to the broker, for all schemes of URL. A
	// user in it is sent as basic authentication, in the clear. Nil means no proxy: the environment is ignored.
	Proxy *url.URL

	// MinQoS is the least quality of service of all that is published and subscribed to, the will too: AtMostOnce
	// unless set.
	MinQoS QoS
	// MinLinkRate is the least rate of the link in bytes per second, DefaultMinLinkRate unless set.
	MinLinkRate int
	// KeepAlive is in whole seconds, 60 s unless set. The wait for a PINGRESP is half as long, for an acknowledgement
	// as long.
	KeepAlive time.Duration
	// ConnectTimeout bounds one attempt, 10 s unless set. With several URLs it is
	// shorter until all have been tried.
	ConnectTimeout time.Duration
	// WriteTimeout bounds the sending of one message; a link that takes longer is given up. Unless set, it is four
	// times what the largest message takes at MinLinkRate, and at least 20 s.
	WriteTimeout time.Duration
	// MaxReconnectDelay bounds the wait between attempts, 60 s unless set.
	MaxReconnectDelay time.Duration
	// MaxPacket bounds one MQTT packet in either direction, in bytes of payload,
	// testTopic and framing, 131072 unless set. A larger message that arrives is
	// dropped, and acknowledged if its QoS is 1; the link stays. A broker that sends
	// a larger packet of any other type is disconnected.
	MaxPacket int

	// Will, if set, is asked before each attempt for what the broker should
	// publishQoS0 when this link dies; nothing if its topic is empty. It may not block.
	Will func() Message

	// MailboxMessages and MailboxBytes bound what waits for the owner (1024
	// and 8 MiB unless set), OutboxMessages and OutboxBytes what waits for the
	// network (512 and 8 MiB unless set).
	MailboxMessages, MailboxBytes int
	OutboxMessages, OutboxBytes   int

	// ObserveMessage, if set, sees every message that was sent or came in, and those
	// that were dropped; each once. It is called from several goroutines and may not block.
	ObserveMessage func(ObservedMessage)
	// Meter, if set, counts the bytes of all attempts and links.
	Meter *TrafficMeter
	// Rand draws the waits between attempts; seeded by the system unless set.
	Rand *rand.Rand
	// OnConnectFailure, if set, hears why each attempt to connect failed; one is [ErrRefused] if the broker's answer
	// was no. It may not block.
	OnConnectFailure func(error)
	// Logger receives connects, losses and failed attempts; nil discards them.
	Logger *slog.Logger
}

// ObservedMessage is one message as Options.Observe sees it. Dropped means, for an
// incoming message, that the mailbox was full or that the message exceeded
// ExceededSizeLimit and, for an outgoing one, that the link went down, or the session
// closed, before it was written (QoS 0) or acknowledged (QoS 1): such a message
// may have arrived or not, and is never sent again.
type ObservedMessage struct {
	IsIncoming   bool
	Topic        string
	PayloadBytes int // of payload
	IsDropped    bool
	// ExceededSizeLimit is Options.MaxPacket if the message was dropped because it exceeded MaxPacket, and otherwise 0.
	ExceededSizeLimit int
	// OversizedPacketSize is the length of the message with topic and framing if it exceeded ExceededSizeLimit, and
	// otherwise 0.
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
		_, _ = cryptorand.Read(seed[:]) // never fails: it would end the process
		o.Rand = rand.New(rand.NewChaCha8(seed))
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// renewCredentials asks Renew for the password and the settings of TLS.
func (o *Options) renewCredentials() {
	if o.RenewCredentials == nil {
		return
	}
	password, encryption, err := o.RenewCredentials()
	if err != nil {
		o.Logger.Warn("password and certificates for the broker cannot be read again; the earlier ones are used",
			"err", err)
		return
	}
	o.Password, o.TLS = password, encryption
}

// tlsConfig returns the settings of TLS for a connection.
func (o *Options) tlsConfig() *tls.Config {
	config := o.TLS.Clone() // nil stays nil
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

// Validate reports what Dial would refuse, so that a configuration can be checked without a broker.
func (o Options) Validate() error {
	_, err := o.withDefaults().validatedURLs()
	return err
}

// validatedURLs checks options that have their defaults, and returns the broker's URLs.
func (o Options) validatedURLs() ([]*url.URL, error) {
	urls, err := parseBrokerURLs(append([]string{o.URL}, o.MoreURLs...))
	if err != nil {
		return nil, err
	}
	switch {
	case o.TLS != nil && !usesTLS(urls[0]):
		err = fmt.Errorf("mqtt: TLS settings are given, but %s:// does not encrypt; write tls:// or wss://",
			urls[0].Scheme)
	case o.ClientID == "":
		err = errors.New("mqtt: no client id; give each session one of its own")
	case checkMQTTString(o.ClientID) != nil:
		err = fmt.Errorf("mqtt: client id %.64q: %w", o.ClientID, checkMQTTString(o.ClientID))
	case o.Username == "" && o.Password != "":
		err = errors.New("mqtt: a password without a user name is not sent; set both")
	case o.KeepAlive%time.Second != 0 || o.KeepAlive < time.Second || o.KeepAlive > 65535*time.Second:
		err = fmt.Errorf("mqtt: keepalive %v: must be whole seconds from 1s to 65535s", o.KeepAlive)
	case o.ConnectTimeout < 0 || o.WriteTimeout < 0 || o.MaxReconnectDelay < 0:
		err = errors.New("mqtt: connect timeout, write timeout and longest reconnect delay must not be negative")
	case min(o.MailboxMessages, o.MailboxBytes, o.OutboxMessages, o.OutboxBytes) < 0:
		err = errors.New("mqtt: the bounds of mailbox and outbox must not be negative")
	case o.MinLinkRate < 0:
		err = fmt.Errorf("mqtt: least rate of the link %d bytes per second: must not be negative", o.MinLinkRate)
	case o.MinQoS > AtLeastOnce:
		err = fmt.Errorf("mqtt: QoS %d: must be 0 or 1", o.MinQoS)
	case o.MaxPacket < 0:
		err = fmt.Errorf("mqtt: largest packet %d bytes: must not be negative", o.MaxPacket)
	default:
		err = checkProxyURL(o.Proxy)
	}
	return urls, err
}

// parseBrokerURLs takes the URLs of the nodes of one cluster.
func parseBrokerURLs(list []string) ([]*url.URL, error) {
	var urls []*url.URL
	for _, s := range list {
		u, err := parseBrokerURL(s)
		if err != nil {
			return nil, err
		}
		switch {
		case slices.ContainsFunc(urls, func(other *url.URL) bool { return *other == *u }):
			return nil, fmt.Errorf("mqtt: broker URL %q is there twice; remove one", u.Redacted())
		case len(urls) > 0 && usesTLS(u) != usesTLS(urls[0]): // blocking the TLS one would expose all
			return nil, fmt.Errorf("mqtt: broker URL %q: some URLs encrypt and some do not; give tls:// or wss:// "+
				"for all, or for none", u.Redacted())
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
		return nil, fmt.Errorf("mqtt: broker URL %q: port %s: must be 1 to 65535", redactedURL(u, s), u.Port())
	}
	switch u.Scheme {
	case "tcp", "mqtt", "tls", "ssl", "mqtts":
		if u.Port() == "" {
			return nil, fmt.Errorf("mqtt: broker URL %q has no port; add one: usually 1883, or 8883 for TLS",
				redactedURL(u, s))
		}
	case "ws", "wss":
	default:
		return nil, fmt.Errorf("mqtt: broker URL %q: unknown scheme %q; use tcp, mqtt, tls, ssl, mqtts, ws or wss",
			redactedURL(u, s), u.Scheme)
	}
	if u.User != nil { // the URL is logged
		return nil, fmt.Errorf("mqtt: broker URL %q carries credentials; give them as user name and password",
			u.Redacted())
	}
	return u, nil
}

// hasValidPort reports whether a URL has a port from 1 to 65535, or none.
func hasValidPort(u *url.URL) bool {
	n, err := strconv.ParseUint(u.Port(), 10, 16)
	return u.Port() == "" || err == nil && n > 0
}

// redactedURL keeps a password out of an error text; u is nil if s is no URL at all.
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
