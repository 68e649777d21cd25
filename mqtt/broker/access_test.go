package broker_test

import (
	"crypto/tls"
	"log/slog"
	"strings"
	"testing"

	"github.com/eclipse/paho.mqtt.golang/packets"

	"github.com/fedmesh/fedmesh/internal/testkit/acltest"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/broker"
	"github.com/fedmesh/fedmesh/mqtt/broker/acl"
)

// allow returns an Options.Allow function with fedmesh's access rules, which also gives full access to the user
// "observer".
func allow(t *testing.T) func(string, string, bool) bool {
	t.Helper()
	rules, err := acl.NewRuleTable("")
	if err != nil {
		t.Fatal(err)
	}
	return func(user, topic string, toWrite bool) bool {
		return user == acltest.ObserverUser || rules.Allowed(user, topic, toWrite)
	}
}

func password(_, user, password string) bool { return password == "password of "+user }

func asUser(s *broker.Server) func(string) mqtt.Options {
	return func(user string) mqtt.Options {
		return mqtt.Options{URL: s.URL(), ClientID: user, Username: user, Password: "password of " + user}
	}
}

func TestAccessWithPasswords(t *testing.T) {
	s := start(t, broker.Options{Authenticate: password, Allow: allow(t)})
	acltest.Run(t, acltest.Broker{RefusesFilters: true, Options: asUser(s)})
	denied := 1 // denied starts at 1, because the denial of the will was counted already
	for _, row := range acltest.Table {
		for _, user := range acltest.Users {
			if !row.MayWrite(user) {
				denied++
			}
		}
	}
	if got := s.Stats().Denied; got != int64(denied) {
		t.Errorf("%d messages denied, want %d", got, denied)
	}
}

// serverTLS returns a configuration that requires client certificates of the given authority.
func serverTLS(t *testing.T, a *acltest.Authority) *tls.Config {
	t.Helper()
	return &tls.Config{
		Certificates: []tls.Certificate{a.Issue(t, "broker")},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: a.Pool(),
		MinVersion: tls.VersionTLS12,
	}
}

func clientTLS(a *acltest.Authority, certificates ...tls.Certificate) *tls.Config {
	return &tls.Config{RootCAs: a.Pool(), Certificates: certificates, MinVersion: tls.VersionTLS12}
}

func TestAccessWithCertificates(t *testing.T) {
	a := acltest.NewAuthority(t)
	s := start(t, broker.Options{TLS: serverTLS(t, a), Allow: allow(t)})
	if !strings.HasPrefix(s.URL(), "tls://127.0.0.1:") {
		t.Errorf("URL is %s", s.URL())
	}
	acltest.Run(t, acltest.Broker{RefusesFilters: true, Options: func(user string) mqtt.Options {
		return mqtt.Options{URL: s.URL(), ClientID: user, Username: "whatever", TLS: clientTLS(a, a.Issue(t, user))}
	}})
}

func TestCertificatesRefused(t *testing.T) {
	a, b := acltest.NewAuthority(t), acltest.NewAuthority(t)
	s := start(t, broker.Options{TLS: serverTLS(t, a)})
	for name, c := range map[string]struct {
		certificates []tls.Certificate
		want         string
	}{
		"none":                 {nil, "did not answer CONNECT"},
		"of another authority": {[]tls.Certificate{b.Issue(t, "air-press")}, "did not answer CONNECT"},
		"without a name":       {[]tls.Certificate{a.Issue(t, "")}, "did not answer CONNECT"},
		// This refusal also happens without Options.Allow.
		"of another user": {[]tls.Certificate{a.Issue(t, "air-press-2")}, "refused client id air-press"},
	} {
		t.Run(name, func(t *testing.T) {
			o := mqtt.Options{URL: s.URL(), ClientID: "air-press", Username: "air-press",
				TLS: clientTLS(a, c.certificates...)}
			failure, session := acltest.Attempt(t, o)
			if session != nil {
				_ = session.Close()
			}
			if !strings.Contains(failure, c.want) {
				t.Errorf("the attempt ended with %q, want %q in it", failure, c.want)
			}
		})
	}
}

// TestAuthenticateWithCertificate checks that Authenticate receives the name in the certificate.
func TestAuthenticateWithCertificate(t *testing.T) {
	a := acltest.NewAuthority(t)
	s := start(t, broker.Options{TLS: serverTLS(t, a), Authenticate: password})
	o := asUser(s)("air-press")
	o.TLS = clientTLS(a, a.Issue(t, "air-press"))
	o.Username = "root"
	mqtttest.Dial(t, o)
	o.Password = "password of root"
	if failure, _ := acltest.Attempt(t, o); !strings.Contains(failure, "refused client id") {
		t.Errorf("the attempt ended with %q", failure)
	}
}

// TestPasswordsOverTLS checks TLS without client certificates: it protects passwords, and the user name comes from
// CONNECT.
func TestPasswordsOverTLS(t *testing.T) {
	a := acltest.NewAuthority(t)
	s := start(t, broker.Options{Authenticate: password, TLS: &tls.Config{
		Certificates: []tls.Certificate{a.Issue(t, "broker")}, MinVersion: tls.VersionTLS12,
	}})
	o := asUser(s)("air-press")
	o.TLS = clientTLS(a)
	mqtttest.Dial(t, o)
	o.Password = "wrong"
	if failure, _ := acltest.Attempt(t, o); !strings.Contains(failure, "refused client id") {
		t.Errorf("the attempt ended with %q", failure)
	}
}

// TestMessagesAreCheckedOnDelivery checks that each delivered message, retained or live, is checked against the access
// rules, even if the subscription was granted.
func TestMessagesAreCheckedOnDelivery(t *testing.T) {
	s := start(t, broker.Options{
		Authenticate: func(string, string, string) bool { return true },
		Allow:        func(_, topic string, toWrite bool) bool { return toWrite || topic != "x/secret" },
	})
	c := mqtttest.Dial(t, mqtt.Options{URL: s.URL(), ClientID: "c", Username: "c"})
	publish := func(retained bool) {
		t.Helper()
		for _, topic := range []string{"x/secret", "x/open"} {
			if err := c.Publish(mqtt.Message{Topic: topic, Payload: []byte{1}, Retained: retained}); err != nil {
				t.Fatal(err)
			}
		}
	}
	publish(true)
	c.Subscribe(mqtt.AtMostOnce, "x/+")
	publish(false)
	for _, retained := range []bool{true, false} {
		if m := mqtttest.Received(t, c); m.Topic != "x/open" || m.Retained != retained {
			t.Errorf("got %+v", m)
		}
	}
}

// TestDeniedIsAcknowledged checks that a forbidden message is acknowledged, because a device would send an
// unacknowledged message again forever.
func TestDeniedIsAcknowledged(t *testing.T) {
	lines := make(chan string, 10)
	s := start(t, broker.Options{
		Authenticate: func(string, string, string) bool { return true }, Allow: allow(t),
		Logger: slog.New(slog.NewTextHandler(lineWriter(lines), nil)),
	})
	c := rawDial(t, s)
	c.Connect(mqtt.Options{ClientID: "air-press", Username: "air-press"})
	for id := range uint16(3) {
		p := packets.NewControlPacket(packets.Publish).(*packets.PublishPacket)
		p.TopicName, p.Qos, p.MessageID = "fl/v1/air/round", 1, id+1
		c.Send(p)
		if ack := brokers.Receive[*packets.PubackPacket](c); ack.MessageID != id+1 {
			t.Errorf("PUBACK for %d, want %d", ack.MessageID, id+1)
		}
	}
	if code := subscribe(c, 9, 1, "$share/group/fl/v1/air/round"); code != 0x80 {
		t.Errorf("SUBACK %#x", code)
	}
	if denied := s.Stats().Denied; denied != 3 {
		t.Errorf("%d messages denied", denied)
	}
	if line := logged(t, lines); !strings.Contains(line, "topic=fl/v1/air/round") || len(lines) != 0 {
		t.Errorf("logged %q, and %d more", line, len(lines))
	}
}
