package mqtt_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	mochi "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/listeners"
	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/broker"
)

// selfSigned returns a certificate for 127.0.0.1 and a pool that trusts it.
func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

func TestTLS(t *testing.T) {
	server, err := broker.Start(broker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	certificate, pool := selfSigned(t)
	p := startProxy(t, server.URL(), &tls.Config{Certificates: []tls.Certificate{certificate}})
	url := strings.Replace(p.url(), "tcp://", "mqtts://", 1)

	s := dial(t, mqtt.Options{URL: url, ClientID: "s", TLS: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}})
	mqtttest.SyncWithBroker(t, s)
	p.cut()
	mqtttest.WantDown(t, s)
	mqtttest.WantUp(t, s)

	logger, lines := logged()
	dialing(t, mqtt.Options{URL: url, ClientID: "distrustful", Logger: logger})
	if l := line(t, lines); !strings.Contains(l, "cannot reach the broker at "+url+": ") ||
		!strings.Contains(l, "certificate") {
		t.Errorf("logged %s", l)
	}
}

// TestRenew checks that each connection attempt uses the current certificates. While the certificates cannot be read,
// it uses the last valid ones.
func TestRenew(t *testing.T) {
	server, err := broker.Start(broker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	certificate, pool := selfSigned(t)
	_, other := selfSigned(t)
	p := startProxy(t, server.URL(), &tls.Config{Certificates: []tls.Certificate{certificate}})
	renewals := []func() (string, *tls.Config, error){
		func() (string, *tls.Config, error) { return "", &tls.Config{RootCAs: pool}, nil },
		func() (string, *tls.Config, error) { return "", nil, errors.New("half of a file") },
		func() (string, *tls.Config, error) { return "", &tls.Config{RootCAs: other}, nil },
	}
	asked, failed := 0, make(chan error, 1)
	s := dial(t, mqtt.Options{URL: strings.Replace(p.url(), "tcp://", "mqtts://", 1), ClientID: "s",
		RenewCredentials: func() (string, *tls.Config, error) {
			asked++
			return renewals[min(asked, len(renewals))-1]()
		},
		OnConnectFailure: func(err error) {
			select {
			case failed <- err:
			default:
			}
		}})
	mqtttest.SyncWithBroker(t, s)
	p.cut()
	mqtttest.WantDown(t, s)
	mqtttest.WantUp(t, s)
	p.cut()
	mqtttest.WantDown(t, s)
	if err := <-failed; !strings.Contains(err.Error(), "certificate") {
		t.Errorf("with another authority: %v", err)
	}
}

type allowAll struct{ mochi.HookBase }

func (*allowAll) Provides(b byte) bool {
	return b == mochi.OnConnectAuthenticate || b == mochi.OnACLCheck
}
func (*allowAll) OnConnectAuthenticate(*mochi.Client, packets.Packet) bool { return true }
func (*allowAll) OnACLCheck(*mochi.Client, string, bool) bool              { return true }

// startWebsocket starts mochi with a WebSocket listener, because neither the embedded broker nor every build of
// Mosquitto supports WebSocket.
func startWebsocket(t *testing.T) (url string) {
	t.Helper()
	address := brokers.FreeAddress(t)
	server := mochi.New(&mochi.Options{Logger: slog.New(slog.DiscardHandler)})
	if err := errors.Join(
		server.AddHook(new(allowAll), nil),
		server.AddListener(listeners.NewWebsocket(listeners.Config{ID: "ws", Address: address})),
		server.Serve(),
	); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return "tcp://" + address
}

func TestWebsocket(t *testing.T) {
	p := startProxy(t, startWebsocket(t), nil)
	s := dial(t, mqtt.Options{URL: strings.Replace(p.url(), "tcp://", "ws://", 1) + "/mqtt", ClientID: "s"})
	mqtttest.SyncWithBroker(t, s)
	p.cut()
	mqtttest.WantDown(t, s)
	mqtttest.WantUp(t, s)
	mqtttest.SyncWithBroker(t, s)
}

func TestEndOfContextCloses(t *testing.T) {
	server, err := broker.Start(broker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	ctx, cancel := context.WithCancel(context.Background())
	s, err := mqtt.Dial(ctx, mqtt.Options{URL: server.URL(), ClientID: "s"})
	if err != nil {
		t.Fatal(err)
	}
	mqtttest.WantUp(t, s)
	cancel()
	for range s.Events() { // read until the channel is closed
	}
}

func TestDialRefusesBadOptions(t *testing.T) {
	for name, c := range map[string]struct {
		o    mqtt.Options
		want string
	}{
		"nothing":      {mqtt.Options{}, "is not scheme://host:port"},
		"no scheme":    {mqtt.Options{URL: "broker:1883", ClientID: "s"}, "is not scheme://host:port"},
		"no port":      {mqtt.Options{URL: "tcp://broker", ClientID: "s"}, "has no port"},
		"port 0":       {mqtt.Options{URL: "wss://broker:0", ClientID: "s"}, "port is 0: must be 1 to 65535"},
		"port 65536":   {mqtt.Options{URL: "tcp://broker:65536", ClientID: "s"}, "port is 65536: must be"},
		"http":         {mqtt.Options{URL: "http://broker:80", ClientID: "s"}, `unknown scheme "http"`},
		"credentials":  {mqtt.Options{URL: "tcp://u:hush@broker:1883", ClientID: "s"}, "contains credentials"},
		"not a URL":    {mqtt.Options{URL: "tcp://u:hush@broker:port", ClientID: "s"}, "is not scheme://host:port"},
		"no client id": {mqtt.Options{URL: "tcp://broker:1883"}, "client id is empty"},
		"NUL":          {mqtt.Options{URL: "tcp://broker:1883", ClientID: "s\x00"}, "NUL"},
		"no user": {mqtt.Options{URL: "tcp://broker:1883", ClientID: "s", Password: "hush"},
			"without a user name"},
		"TLS unused": {mqtt.Options{URL: "tcp://broker:1883", ClientID: "s",
			TLS: &tls.Config{MinVersion: tls.VersionTLS12}}, "is not encrypted"},
		"bad node": {mqtt.Options{URL: "tcp://a:1883", MoreURLs: []string{"tcp://b"}, ClientID: "s"},
			`"tcp://b" has no port`},
		"node twice": {mqtt.Options{URL: "tcp://a:1883", MoreURLs: []string{"tcp://b:1883", "tcp://a:1883"},
			ClientID: "s"}, `duplicate broker URL "tcp://a:1883"`},
		"mixed nodes": {mqtt.Options{URL: "tls://a:8883", MoreURLs: []string{"tcp://a:1883"}, ClientID: "s"},
			"cannot mix encrypted and unencrypted URLs"},
		"keepalive": {mqtt.Options{URL: "tcp://broker:1883", ClientID: "s", KeepAlive: 1500 * time.Millisecond},
			"whole seconds"},
		"delay": {mqtt.Options{URL: "tcp://broker:1883", ClientID: "s", MaxReconnectDelay: -1},
			"must not be negative"},
		"mailbox": {mqtt.Options{URL: "tcp://broker:1883", ClientID: "s", MailboxBytes: -1}, "must not be negative"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := mqtt.Dial(context.Background(), c.o)
			if err == nil {
				_ = s.Close()
				t.Fatal("no error")
			}
			if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hush") {
				t.Errorf("error is %q, want %q in it", err, c.want)
			}
		})
	}
}
