package identity_test

import (
	"crypto/ed25519"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/identity"
	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/hosts"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// recordingConn is a connection that records subscriptions.
type recordingConn struct {
	mqtt.Conn
	subscribed []string
}

func (c *recordingConn) Subscribe(_ mqtt.QoS, filters ...string) {
	c.subscribed = append(c.subscribed, filters...)
}

// newPart returns the identity part of an agent "press" with an empty state folder, and the part's connection.
func newPart(t *testing.T, cfg *identity.Config) (*identity.AgentIdentity, *recordingConn) {
	t.Helper()
	conn, ignore := &recordingConn{}, testkit.Observer(func(observe.Event) {})
	core := &part.AgentCore{Federation: "plant", ID: "press", Topics: hosts.TopicsOf(t, "plant"), Conn: conn,
		StateFolder: state.Folder{Disk: store.LocalDisk, Dir: t.TempDir(), Observer: ignore},
		Loop:        host.NewEventLoop(nil),
		Signer:      &host.Signer{Federation: "plant", Sender: "press", Epoch: 1, SignatureScheme: wire.Ed25519{}},
		Observer:    ignore, IsUplinkBudgetSpent: func() bool { return false }}
	cfg.Key = hosts.TestKey("press")
	p, err := identity.New(core, cfg, func() {})
	if err != nil {
		t.Fatal(err)
	}
	return p, conn
}

// rootDocument returns a root document with the coordinator's keys.
func rootDocument(keys ...ed25519.PrivateKey) *wire.RootDocument {
	d := &wire.RootDocument{Federation: "plant", Version: wire.FirstRootVersion,
		CoordinatorKey: wire.SigningPublicKeyOf(keys[0])}
	for _, k := range keys[1:] {
		d.ExtraCoordinatorKeys = append(d.ExtraCoordinatorKeys, wire.SigningPublicKeyOf(k))
	}
	d.Sign(hosts.TestKey("root"), nil)
	return d
}

// TestOpenEnvelope checks that the agent accepts only messages that the coordinator of its federation has signed with a
// key in the root document. The returned selection key must belong to the signing key.
func TestOpenEnvelope(t *testing.T) {
	first, second, stranger := hosts.TestKey(wire.CoordinatorID), hosts.TestKey("second"), hosts.TestKey("stranger")
	p, _ := newPart(t, &identity.Config{Root: rootDocument(first, second)})
	valid := wire.Header{Type: wire.TypeGroupKeyDelivery, Federation: "plant", Sender: wire.CoordinatorID,
		Root:  wire.FirstRootVersion,
		Epoch: 1}
	for _, tt := range []struct {
		name   string
		change func(h *wire.Header)
		key    ed25519.PrivateKey
		want   part.DropReason // expected reason for dropping the message; empty means that it is accepted
	}{
		{"the first key", func(*wire.Header) {}, first, ""},
		{"the second key", func(*wire.Header) {}, second, ""},
		{"a stranger's key", func(*wire.Header) {}, stranger, part.DropSignature},
		{"another federation", func(h *wire.Header) { h.Federation = "mill" }, first, part.DropMisaddressed},
		{"another agent", func(h *wire.Header) { h.Sender = "saw" }, first, part.DropMisaddressed},
		{"a later root document", func(h *wire.Header) { h.Root++ }, first, part.DropNewerRoot},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := valid
			tt.change(&h)
			e, selection, err := p.VerifyCoordinatorEnvelope(wire.SignEnvelope(nil, h, []byte("body"), tt.key))
			if tt.want != "" {
				if d := (*host.MessageDropError[part.DropReason])(nil); !errors.As(err, &d) || d.Reason != tt.want {
					t.Errorf("got %v, want reason %s", err, tt.want)
				}
				return
			}
			want, _ := wire.NewSelectionKey(tt.key, hosts.PublicOf("press"))
			if err != nil || string(e.Body) != "body" || selection != want {
				t.Errorf("got %q, %v, right selection key %v", e.Body, err, selection == want)
			}
		})
	}
	if _, _, err := p.VerifyCoordinatorEnvelope([]byte{1, 2}); err == nil || errors.As(err,
		new(*host.MessageDropError[part.DropReason])) {
		t.Errorf("two bytes: %v, want an error of the decoder", err)
	}
}

// TestNextRootRequests checks that a message that names a later root document makes the agent subscribe to the next
// root document, at most once per 30 seconds.
func TestNextRootRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := hosts.TestKey(wire.CoordinatorID)
		p, conn := newPart(t, &identity.Config{Root: rootDocument(key)})
		p.Start()
		message := wire.SignEnvelope(nil, wire.Header{Type: wire.TypeGroupKeyDelivery, Federation: "plant",
			Sender: wire.CoordinatorID, Root: 2, Epoch: 1}, nil, key)
		for range 70 {
			_, _, _ = p.VerifyCoordinatorEnvelope(message)
			<-time.After(time.Second)
		}
		topic := hosts.TopicsOf(t, "plant").RootDocument(2)
		if want := []string{topic, topic, topic}; !slices.Equal(conn.subscribed, want) {
			t.Errorf("subscribed to %q, want %q", conn.subscribed, want)
		}
	})
}

// TestValidate checks that a configuration without keys is rejected with an error that lists both missing keys.
func TestValidate(t *testing.T) {
	const want = "the agent's key has 0 bytes instead of 64\nthe coordinator's public key has 0 bytes instead of 32"
	if err := new(identity.Config).Validate(); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	rooted := identity.Config{Key: hosts.TestKey("press"), Root: rootDocument(hosts.TestKey("c"))}
	if err := rooted.Validate(); err != nil {
		t.Errorf("with a root document: %v", err)
	}
}
