package d2d

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// TestExchangeConserves sends all as bytes: sealed and open, whole and quantised, in one part and in several.
func TestExchangeConserves(t *testing.T) {
	for _, f := range []fate{{}, {open: true}, {codec: spec.CodecBFloat16}, {codec: spec.CodecInt8}, {killAt: 30}} {
		f.bytes = true
		f.loss, f.dup, f.delay, f.compute, f.gradient = 0.2, 0.05, 120*time.Millisecond, 20*time.Millisecond, 0.1
		f.wait, f.steps, f.drain = 100*time.Millisecond, 60, 5*time.Second
		t.Run(fmt.Sprintf("open=%v codec=%v kill=%d", f.open, f.codec, f.killAt), func(t *testing.T) {
			conserve(t, newWorld[float64](t, 4, 20, 3, ring(20), f), 1e-12)
		})
	}
	t.Run("parts", func(t *testing.T) {
		f := fate{bytes: true, loss: 0.1, dup: 0.05, delay: 80 * time.Millisecond, compute: 20 * time.Millisecond,
			gradient: 0.1,
			wait:     60 * time.Millisecond, steps: 12, drain: 10 * time.Second}
		conserve(t, newWorld[float32](t, 4, 6, 13_000, ring(6), f), 1e-5)
	})
}

// TestExchangeLockStep gives the bits of the bare machine.
func TestExchangeLockStep(t *testing.T) {
	f := fate{delay: 30 * time.Millisecond, compute: 20 * time.Millisecond, steps: 20, drain: time.Second}
	var ends [][]float32
	for _, f.bytes = range []bool{false, true} {
		w := newWorld[float32](t, 8, 8, 5, ring(8), f)
		w.fate.gradient = 0
		w.run(1e6)
		for _, n := range w.nodes {
			if !n.done {
				t.Fatalf("%s is not done: %+v", n.id, n.m.Stats())
			}
			ends = append(ends, n.x)
		}
	}
	for i := range 8 {
		if !slices.Equal(ends[i], ends[8+i]) {
			t.Errorf("node %d: %v and %v", i, ends[i], ends[8+i])
		}
	}
}

// TestExchangeEndless restarts a node: its keys are new, and its neighbours take them.
func TestExchangeEndless(t *testing.T) {
	for _, open := range []bool{false, true} {
		f := fate{bytes: true, open: open, loss: 0.1, dup: 0.05, delay: 60 * time.Millisecond,
			compute: 10 * time.Millisecond,
			wait:    50 * time.Millisecond, killAt: 50, restart: 2 * time.Second}
		w := newWorld[float64](t, 3, 8, 3, ring(8), f)
		w.run(60_000)
		if back := w.nodes[0]; back.boot != 2 || back.m.Stats().Flows < 100 || !back.m.Stats().Joined {
			t.Errorf("open %v: node 0 is at boot %d: %+v", open, back.boot, back.m.Stats())
		}
		if s := w.spread(); s > 1e-6 {
			t.Errorf("open %v: spread %g", open, s)
		}
	}
}

// pair is two neighbours that have exchanged keys, and all that a said so far.
func pair(t *testing.T) (a, b *Exchange[float64], said [][]byte) {
	t.Helper()
	w := newWorld[float64](t, 1, 2, 2, map[[2]int]float64{{0, 1}: 0.5}, fate{bytes: true, steps: 5})
	a, b = w.nodes[0].m.(*Exchange[float64]), w.nodes[1].m.(*Exchange[float64])
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
	end := func(self, peer wire.AgentID, run wire.RunID, round wire.RoundID) (e *Exchange[float64], said [][]byte) {
		e, err := NewExchange(ExchangeConfig[float64]{Self: self, Run: run, Round: round, Config: Config[float64]{
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
	w := newWorld[float64](&testing.T{}, 1, 2, 2, map[[2]int]float64{{0, 1}: 0.5},
		fate{bytes: true, open: true, steps: 5})
	a := w.nodes[0].m
	for _, m := range published(append(a.Step(time.Time{}, Start{}), a.Step(time.Time{}, Stepped{})...)) {
		f.Add(m)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		w.nodes[1].m.Step(time.Time{}, Message{payload})
	})
}
