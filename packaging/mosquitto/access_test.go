package mosquitto_test

import (
	"crypto/tls"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fedmesh/fedmesh/internal/testkit/acltest"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/packaging/mosquitto"
	"github.com/fedmesh/fedmesh/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// everyone returns the access rules for all users in the table of package acltest, in both federations, and for the
// observer.
func everyone(t *testing.T) []byte {
	t.Helper()
	return slices.Concat(
		rules(t, "air", "press", "press-2", "land-coordinator"),
		rules(t, "land", "press"),
		[]byte("\nuser "+acltest.ObserverUser+"\ntopic readwrite #\n"))
}

func TestAccessWithPasswords(t *testing.T) {
	p := brokers.NewMosquitto(t, mosquitto.PlainConf)
	p.Write(t, "acl", everyone(t))
	p.AddUsers(t, append(slices.Clone(acltest.Users), acltest.ObserverUser)...)
	p.Start(t)
	options := func(user string) mqtt.Options {
		return mqtt.Options{URL: "tcp://" + p.Address, ClientID: user, Username: user, Password: "password of " + user}
	}
	acltest.Run(t, acltest.Broker{Options: options})

	wrong, nobody := options("air-press"), options("air-press")
	wrong.Password = "wrong"
	nobody.Username, nobody.Password = "", ""
	for name, o := range map[string]mqtt.Options{"wrong": wrong, "none": nobody, "of nobody": options("air-nobody")} {
		if failure, s := acltest.Attempt(t, o); s != nil || !strings.Contains(failure, "refused client id") {
			t.Errorf("password %s: %q", name, failure)
		}
	}
}

// secured returns a broker with the production configuration that we ship, its certificate authority, and a function.
// The function returns the connection options for a client certificate.
func secured(t *testing.T, acl []byte) (*brokers.Mosquitto, *acltest.Authority, func(...tls.Certificate) mqtt.Options) {
	t.Helper()
	a := acltest.NewAuthority(t)
	p := brokers.NewMosquitto(t, mosquitto.Conf)
	p.Write(t, "acl", acl)
	p.AddCertificates(t, a)
	return p, a, func(certificates ...tls.Certificate) mqtt.Options {
		return mqtt.Options{
			URL: "tls://" + p.Address, ClientID: "whatever", Username: "whatever",
			TLS: &tls.Config{RootCAs: a.Pool(), Certificates: certificates, MinVersion: tls.VersionTLS12},
		}
	}
}

// expect checks the topic and the payload of the next message.
func expect(t *testing.T, s *mqtt.Session, topic, payload string) {
	t.Helper()
	if e, ok := mqtttest.Event(t, s).(mqtt.MessageReceived); !ok || e.Topic != topic || string(e.Payload) != payload {
		t.Errorf("got %.200v, want %s under %s", e, payload, topic)
	}
}

// observe returns a session that is subscribed to all topics.
func observe(t *testing.T, o mqtt.Options) *mqtt.Session {
	t.Helper()
	s := mqtttest.Dial(t, o)
	s.Subscribe(mqtt.AtLeastOnce, "#")
	mqtttest.Publish(t, s, mqtt.Message{Topic: "begin"})
	expect(t, s, "begin", "")
	return s
}

func TestAccessWithCertificates(t *testing.T) {
	p, a, with := secured(t, everyone(t))
	p.Start(t)
	acltest.Run(t, acltest.Broker{Options: func(user string) mqtt.Options {
		o := with(a.Issue(t, user))
		o.ClientID = user
		return o
	}})
}

func TestCertificatesRefused(t *testing.T) {
	p, a, with := secured(t, everyone(t))
	p.Start(t)
	stranger := acltest.NewAuthority(t)
	for name, certificates := range map[string][]tls.Certificate{
		"none":                 nil,
		"of another authority": {stranger.Issue(t, "air-press")},
		"without a name":       {a.Issue(t, "")},
	} {
		if failure, s := acltest.Attempt(t, with(certificates...)); s != nil || failure == "" {
			t.Errorf("certificate %s was let in", name)
		}
	}
	plain := with()
	plain.URL, plain.TLS, plain.ConnectTimeout = strings.Replace(plain.URL, "tls", "tcp", 1), nil, time.Second
	if failure, s := acltest.Attempt(t, plain); s != nil || failure == "" {
		t.Error("a client without TLS was let in")
	}
}

// TestRevokedCertificate checks that Mosquitto reads the certificate revocation list again when it reloads its
// configuration.
func TestRevokedCertificate(t *testing.T) {
	commented := "#crlfile "
	if strings.Count(string(mosquitto.Conf), commented) != 1 {
		t.Fatalf("the file has no line %s", commented)
	}
	p, a, with := secured(t, everyone(t))
	p.Configure(t, []byte(strings.Replace(string(mosquitto.Conf), commented, "crlfile ", 1)))
	lost, kept := a.Issue(t, "air-press"), a.Issue(t, "air-press-2")
	p.WriteRevocations(t, a)
	p.Start(t)
	_ = mqtttest.Dial(t, with(lost)).Close()
	p.WriteRevocations(t, a, lost)
	p.Reload(t)
	if _, s := acltest.Attempt(t, with(lost)); s != nil {
		t.Error("a revoked certificate was let in")
		_ = s.Close()
	}
	mqtttest.Dial(t, with(kept))
}

// TestReloadedRules checks that a user gains access when it is added to the rules, and loses access when it is removed
// from the rules.
func TestReloadedRules(t *testing.T) {
	listed := everyone(t)
	without := slices.Concat(rules(t, "air", "press-2"), []byte("\nuser "+acltest.ObserverUser+"\ntopic readwrite #\n"))
	p, a, with := secured(t, without)
	p.Start(t)
	observer := observe(t, with(a.Issue(t, acltest.ObserverUser)))
	certificate := a.Issue(t, "air-press")
	say := func(what string) {
		t.Helper()
		s := mqtttest.Dial(t, with(certificate))
		mqtttest.Publish(t, s, mqtt.Message{Topic: "fl/v1/air/p/air-press", Payload: []byte(what),
			QoS: mqtt.AtLeastOnce})
		_ = s.Close() // Close waits until the broker has acknowledged the message
	}
	become := func(acl []byte) {
		t.Helper()
		p.Write(t, "acl", acl)
		p.Reload(t)
	}
	say("not yet")
	become(listed)
	say("now")
	become(without)
	say("no longer")
	become(listed)
	say("again")
	expect(t, observer, "fl/v1/air/p/air-press", "now")
	expect(t, observer, "fl/v1/air/p/air-press", "again")
}

// TestOneOfManyRevoked removes one of a hundred connected devices from access rules with ten thousand devices. The
// other devices must keep their connections without losing messages. Messages of the removed device must no longer be
// delivered.
func TestOneOfManyRevoked(t *testing.T) {
	const listed, connected, revoked = 10_000, 100, 50
	var ids []wire.AgentID
	for i := range listed {
		ids = append(ids, wire.AgentID(fmt.Sprintf("device-%05d", i)))
	}
	without := func(ids []wire.AgentID) []byte {
		return slices.Concat(written(t, "air", ids, false),
			[]byte("\nuser "+acltest.ObserverUser+"\ntopic readwrite #\n"))
	}
	p, a, with := secured(t, without(ids))
	p.Start(t)
	o := with(a.Issue(t, acltest.ObserverUser))
	o.MailboxMessages = 4 * connected
	observer := observe(t, o)
	var sessions []*mqtt.Session
	for _, id := range ids[:connected] {
		o := with(a.Issue(t, "air-"+string(id)))
		o.ClientID = "air-" + string(id)
		sessions = append(sessions, mqtttest.Dial(t, o))
	}
	say := func(what string, but int) {
		t.Helper()
		for i, s := range sessions {
			mqtttest.Publish(t, s, mqtt.Message{Topic: "fl/v1/air/p/air-" + string(ids[i]), Payload: []byte(what),
				QoS: mqtt.AtLeastOnce})
		}
		left := map[string]bool{}
		for i, id := range ids[:connected] {
			left["fl/v1/air/p/air-"+string(id)] = i != but
		}
		for slices.Contains(slices.Collect(maps.Values(left)), true) {
			m := mqtttest.Received(t, observer)
			if string(m.Payload) != what || !left[m.Topic] {
				t.Fatalf("%s: %q under %s", what, m.Payload, m.Topic)
			}
			left[m.Topic] = false
		}
	}
	say("before", -1)
	p.Write(t, "acl", without(slices.Delete(slices.Clone(ids), revoked, revoked+1)))
	began := time.Now()
	p.Reload(t)
	say("after", revoked)
	t.Logf("%v from the signal until %d messages had come, with %d devices in the rules", time.Since(began),
		connected-1, listed-1)
	mqtttest.Publish(t, observer, mqtt.Message{Topic: "end"})
	expect(t, observer, "end", "")
	for i, s := range sessions {
		for len(s.Events()) > 0 {
			if e, down := (<-s.Events()).(mqtt.LinkDown); down && i != revoked {
				t.Errorf("%s lost its connection: %+v", ids[i], e)
			}
		}
	}
}

// TestLongestName checks that the longest names that the protocol allows work as common names of certificates, although
// they exceed the limit of the X.509 standard.
func TestLongestName(t *testing.T) {
	name := strings.Repeat("f", 32) + "-" + strings.Repeat("a", 48)
	text := slices.Concat(rules(t, "ffffffffffffffffffffffffffffffff",
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
		[]byte("\nuser "+acltest.ObserverUser+"\ntopic readwrite #\n"))
	p, a, with := secured(t, text)
	p.Start(t)
	observer := observe(t, with(a.Issue(t, acltest.ObserverUser)))
	topic := "fl/v1/" + name[:32] + "/p/" + name
	mqtttest.Publish(t, mqtttest.Dial(t, with(a.Issue(t, name))), mqtt.Message{Topic: topic, Payload: []byte("online")})
	expect(t, observer, topic, "online")
}

// TestBoundsAndPersistence checks that a coordinator that connects late receives the presence messages of a thousand
// devices, even after a restart of the broker.
func TestBoundsAndPersistence(t *testing.T) {
	const n = 1000
	p, a, with := secured(t, everyone(t))
	p.Start(t)
	o := with(a.Issue(t, "air-coordinator"))
	o.OutboxMessages, o.MailboxMessages = 2*n, 2*n
	early := mqtttest.Dial(t, o)
	for i := range n {
		mqtttest.Publish(t, early, mqtt.Message{Topic: fmt.Sprint("fl/v1/air/p/air-", i), Payload: make([]byte, 400),
			QoS: mqtt.AtLeastOnce, Retained: true})
	}
	early.Subscribe(mqtt.AtMostOnce, "fl/v1/air/d/end")
	largest := mqtt.Message{Topic: "fl/v1/air/d/end", Payload: make([]byte, 64<<10)}
	mqtttest.Publish(t, early, largest)
	if e, ok := mqtttest.Event(t, early).(mqtt.MessageReceived); !ok || len(e.Payload) != 64<<10 {
		t.Fatalf("got %.200v, want the largest message", e)
	}
	_ = early.Close()
	for _, when := range []string{"at once", "after a restart"} {
		late := mqtttest.Dial(t, o)
		late.Subscribe(mqtt.AtLeastOnce, "fl/v1/air/p/+")
		for i := range n {
			if _, ok := mqtttest.Event(t, late).(mqtt.MessageReceived); !ok {
				t.Fatalf("%s: %d messages", when, i)
			}
		}
		_ = late.Close()
		p.Stop(t)
		p.Start(t)
	}

	o.MaxPacket = 256 << 10
	greedy := mqtttest.Dial(t, o)
	mqtttest.Publish(t, greedy, mqtt.Message{Topic: "fl/v1/air/d/end", Payload: make([]byte, 128<<10)})
	if e, ok := mqtttest.Event(t, greedy).(mqtt.LinkDown); !ok {
		t.Errorf("after a message of 128 KiB: %.200v, want Down", e)
	}
}
