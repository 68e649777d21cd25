//go:build chaos

package chaos

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"math"
	"sync/atomic"
	"testing"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/wire"
)

// lie says what a liar sends in a round of that kind, whose base model is w (nil in a statistics round): the vector,
// and the number of rows that it claims. A nil vector is sent to nobody: the liar joins and stays silent.
type lie func(kind wire.Kind, w []float32, features int) (vector []byte, samples uint64)

// liar is a device with a key of its own in the list, and a program of its own. It speaks the protocol, with models
// that ride in the announcement, and does not tell the truth.
type liar struct {
	t        *testing.T
	id       wire.AgentID
	key      ed25519.PrivateKey
	topics   mqtt.Topics
	conn     mqtt.Conn
	lie      lie
	lies     wire.Kind // of the rounds that it lies in
	samples  uint64    // that its hello claims
	sequence uint64
	epoch    wire.Epoch
	header   wire.Header // of the announcement that it follows
	digest   wire.Digest
	now      wire.Announcement
	sent     atomic.Int64 // lies
}

// newLiar makes a liar and its line for the list of keys.
func newLiar(t *testing.T, id wire.AgentID, lies wire.Kind, l lie) (*liar, string) {
	t.Helper()
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	topics, err := mqtt.NewTopics("", "chaos")
	if err != nil {
		t.Fatal(err)
	}
	return &liar{t: t, id: id, key: key, topics: topics, lie: l, lies: lies, samples: 60, epoch: 1}, string(id) + " " +
		base64.StdEncoding.EncodeToString(public) + "\n"
}

// start lies until the test ends.
func (x *liar) start(url string) {
	x.t.Helper()
	conn, err := mqtt.Dial(x.t.Context(), mqtt.Options{URL: url, ClientID: x.topics.ClientID(x.id)})
	if err != nil {
		x.t.Fatal(err)
	}
	x.conn = conn
	done := make(chan struct{})
	x.t.Cleanup(func() {
		_ = conn.Close()
		<-done
	})
	conn.Subscribe(mqtt.AtLeastOnce, x.topics.Device(x.id), x.topics.Round())
	go func() {
		defer close(done)
		for e := range conn.Events() {
			if m, ok := e.(mqtt.Received); ok {
				x.take(m.Message)
			}
		}
	}()
}

func (x *liar) take(m mqtt.Message) {
	e, err := wire.Open(m.Payload)
	if err != nil {
		return
	}
	switch e.Type {
	case wire.TypeAnnouncement:
		if ann, err := wire.DecodeAnnouncement(e.Body); err == nil {
			x.header, x.digest, x.now = e.Header, e.Digest(), ann
			x.hello()
		}
	case wire.TypeInvitation:
		if inv, err := wire.DecodeInvitation(e.Body); err == nil && inv.Announcement == x.digest {
			x.say(x.topics.Status(x.id), wire.TypeJoined, (&wire.Joined{Announcement: x.digest}).Body())
			x.send()
		}
	}
}

func (x *liar) hello() {
	x.say(x.topics.Status(x.id), wire.TypeHello,
		(&wire.Hello{Nonce: 1, Announcement: x.digest, Samples: x.samples}).Body())
}

// send sends the lie, which fits into its manifest.
func (x *liar) send() {
	t, err := wire.DecodeTask(x.now.Task.Inline)
	if err != nil {
		x.t.Errorf("the liar cannot read the task: %v", err)
		return
	}
	w := make([]float32, len(x.now.Base.Inline)/4)
	if err := wire.DecodeVector(w, x.now.Base.Inline); err != nil {
		x.t.Errorf("the liar cannot read the model: %v", err)
		return
	}
	payload, samples := x.lie(x.now.Kind, w, len(t.Features))
	if payload == nil {
		return
	}
	manifest, err := wire.NewManifest(payload, x.now.Schema)
	if err != nil {
		x.t.Errorf("the liar's update: %v", err)
		return
	}
	u := wire.Update{Kind: x.now.Kind, Base: x.now.Base.Hash, Payload: manifest, Inline: payload, LocalSteps: 3,
		Samples: samples, RiskBefore: 0.1, RiskAfter: 0.1, StepTime: 0.001}
	x.say(x.topics.Update(x.id, transfer.ID(wire.BlobDigest(payload)), transfer.ManifestPart), wire.TypeUpdate,
		u.Body())
	if x.now.Kind == x.lies {
		x.sent.Add(1)
	}
}

// say signs a message about the announcement's round and publishes it. A lost message is not missed.
func (x *liar) say(topic string, typ wire.Type, body []byte) {
	x.sequence++
	p := wire.Seal(nil, wire.Header{
		Root: wire.FirstRoot,
		Type: typ, Federation: "chaos", Sender: x.id, Epoch: x.epoch, Run: x.header.Run, Round: x.header.Round,
		Sequence: x.sequence,
	}, body, x.key)
	_ = x.conn.Publish(mqtt.Message{Topic: topic, Payload: p, QoS: mqtt.AtMostOnce})
}

// floats32 is a vector of equal elements.
func floats32(n int, x float64) []byte {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(x)
	}
	return wire.AppendVector(nil, v)
}

// moments is what a statistics round is sent: n, and each column's sum and sum of squares.
func moments(columns int, n, sum, squares float64) []byte {
	b := binary.LittleEndian.AppendUint64(nil, math.Float64bits(n))
	for _, x := range []float64{sum, squares} {
		for range columns {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
		}
	}
	return b
}

// honest is how a liar answers a statistics round that it does not lie in.
func honest(features int) ([]byte, uint64) { return moments(features+1, 60, 0, 60*9), 60 }
