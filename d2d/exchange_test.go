package d2d

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// pair is two neighbours that have exchanged keys, and all that a said so far.
func pair(t *testing.T) (a, b *exchange[float64], said [][]byte) {
	t.Helper()
	w := newLinks[float64](t, 1, 2, 2, map[[2]int]float64{{0, 1}: 0.5}, fate{steps: 5})
	a, b = w.nodes[0].ex, w.nodes[1].ex
	now := time.Unix(0, 0)
	said = published(a.Step(now, Start{}))
	b.Step(now, Start{})
	for _, m := range said {
		b.Step(now, Message{m})
	}
	return a, b, append(said, published(a.Step(now, Stepped{}))...)
}

func published(effects []Effect) (payloads [][]byte) {
	for _, e := range effects {
		if p, ok := e.(Publish); ok {
			payloads = append(payloads, p.Payload)
		}
	}
	return payloads
}

// TestTampering changes every byte of a sealed snapshot and of a greeting: none is taken, none crashes.
func TestTampering(t *testing.T) {
	_, b, said := pair(t)
	now := time.Unix(0, 0)
	for _, good := range said {
		for i := range good {
			bad := slices.Clone(good)
			bad[i] ^= 0x10
			before := b.Stats()
			b.Step(now, Message{bad})
			b.Step(now, Message{bad[:i]})
			if b.mixer.edges[0].early != nil {
				t.Fatalf("byte %d: a changed snapshot was taken", i)
			}
			if b.Stats().Flows != before.Flows {
				t.Fatalf("byte %d: a flow", i)
			}
		}
	}
	b.Step(now, Message{said[len(said)-1]})
	if b.mixer.edges[0].early == nil {
		t.Errorf("the unchanged snapshot was not taken: %+v", b.Stats())
	}
}

// TestOtherBlocks sends what belongs to another run or round: neither the messages of a pair that mixes openly, nor the
// wrapped key of one that seals, with its head changed to this round's.
func TestOtherBlocks(t *testing.T) {
	end := func(self, peer wire.AgentID, run wire.RunID, round wire.RoundID) (e *exchange[float64], said [][]byte) {
		e, err := newExchange(ExchangeConfig[float64]{Self: self, Run: run, Round: round, Config: Config[float64]{
			Boot: 1, Steps: 3, Neighbors: []Neighbor{{ID: peer, Weight: 0.5, Boot: 1}}, Patience: 1,
			Wait: time.Second, Repeat: time.Second, Drain: time.Second}}, []float64{1})
		if err != nil {
			t.Fatal(err)
		}
		said = published(e.Step(time.Time{}, Start{}))
		return e, append(said, published(e.Step(time.Time{}, Stepped{}))...)
	}
	for _, other := range []struct {
		run   wire.RunID
		round wire.RoundID
		used  bool
	}{{1, 2, true}, {9, 2, false}, {1, 9, false}} {
		b, _ := end("b", "a", 1, 2)
		_, said := end("a", "b", other.run, other.round)
		for _, m := range said {
			b.Step(time.Time{}, Message{m})
		}
		if s := b.Stats(); (s.Flows == 1) != other.used || (s.Ignored[IgnoreRound] > 0) == other.used {
			t.Errorf("run %d, round %d: %+v", other.run, other.round, s)
		}
	}

	keys, theirs := &Keys{Sender: [32]byte{1}, Salt: [16]byte{2}}, []byte("the secret that both devices derive")
	h := wire.PeerHead{Type: wire.PeerGreeting, Run: 1, Round: 2, From: "a", Boot: 3}
	to := wire.PeerAddress{ID: "b", Boot: 4}
	wrapped, err := wrap(keys, theirs, h, to)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(h *wire.PeerHead, to *wire.PeerAddress){
		"":                      func(*wire.PeerHead, *wire.PeerAddress) {},
		"run":                   func(h *wire.PeerHead, _ *wire.PeerAddress) { h.Run++ },
		"round":                 func(h *wire.PeerHead, _ *wire.PeerAddress) { h.Round++ },
		"sender":                func(h *wire.PeerHead, _ *wire.PeerAddress) { h.From = "c" },
		"start of the sender":   func(h *wire.PeerHead, _ *wire.PeerAddress) { h.Boot++ },
		"receiver":              func(_ *wire.PeerHead, to *wire.PeerAddress) { to.ID = "c" },
		"start of the receiver": func(_ *wire.PeerHead, to *wire.PeerAddress) { to.Boot++ },
	} {
		h, to := h, to
		change(&h, &to)
		if _, err := unwrap(theirs, h, to, keys.Salt[:], wrapped[:]); (err == nil) != (name == "") {
			t.Errorf("a key wrapped for another %q: %v", name, err)
		}
	}
}

// TestSealed looks for the parameters in what the broker sees.
func TestSealed(t *testing.T) {
	a, _, said := pair(t)
	plain := wire.AppendVector(nil, a.mixer.x)
	for _, m := range said {
		if bytes.Contains(m, plain[:8]) || bytes.Contains(m, plain[8:]) {
			t.Errorf("a parameter stands open in a message")
		}
	}
}

// FuzzMessage feeds neighbours' messages to an exchange.
func FuzzMessage(f *testing.F) {
	w := newLinks[float64](&testing.T{}, 1, 2, 2, map[[2]int]float64{{0, 1}: 0.5}, fate{open: true, steps: 5})
	a := w.nodes[0].ex
	for _, m := range published(append(a.Step(time.Time{}, Start{}), a.Step(time.Time{}, Stepped{})...)) {
		f.Add(m)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		w.nodes[1].ex.Step(time.Time{}, Message{payload})
	})
}
