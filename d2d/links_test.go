package d2d

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/lab/conservation"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// fate configures the simulated failures of messages and agents.
type fate struct {
	loss, dup float64
	delay     time.Duration // maximum random delay of a message; a message may overtake another
	late      bool          // whether each message takes longer than the time for which a step waits for the message
	compute   time.Duration // maximum duration of a local step
	gradient  float64       // size of the random local steps
	killAt    uint64        // step at which node 0 stops; 0 means never
	restart   time.Duration // time until the stopped node 0 restarts; 0 means that it does not restart
	wait      time.Duration
	steps     uint64
	drain     time.Duration
	open      bool // whether messages are not encrypted
	unproved  bool // whether messages are encrypted but contain no sender proofs
	codec     spec.Codec
	clip      float64 // clip bound of all edges; 0 means no bound
	still     bool    // whether node 0 sends the same values at every step
}

// links simulates several message exchanges with a common clock and the messages between them.
type links[T wire.Float] struct {
	t      *testing.T
	fate   fate
	rng    *rand.Rand
	now    time.Time
	agenda []arrival // pending events in ascending order of time; events at the same time are in insertion order
	nodes  []*node[T]
	seals  map[string][]byte // encrypted texts by key and nonce, to detect that a nonce is used twice
	keyed  byte              // number of keys created so far
}

type arrival struct {
	at time.Time
	do func()
}

type node[T wire.Float] struct {
	cfg      MessageExchangeConfig[T]
	ex       *messageExchange[T]
	x        []T
	base     []float64 // initial parameters minus the sum of all local steps
	trace    *conservation.Trace[T]
	dead     bool
	done     bool
	seen     []wire.MixingEdgeMeasurement // measurements that the node reported about its edges
	set      time.Time                    // time at which the node's timer expires
	mostKept int                          // maximum number of stored sealed snapshots
}

// newLinks returns a simulation of n nodes with d parameters each. The map weights contains the weight of each edge.
func newLinks[T wire.Float](t *testing.T, seed uint64, n, d int, weights map[[2]int]float64, f fate) *links[T] {
	l := &links[T]{t: t, fate: f, rng: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(0, 0), seals: map[string][]byte{}}
	id := func(i int) wire.AgentID { return wire.AgentID(fmt.Sprintf("n%03d", i)) }
	for i := range n {
		a := &node[T]{cfg: MessageExchangeConfig[T]{Self: id(i), Run: 1, Round: 2, Codec: f.codec,
			SenderProofs: !f.unproved,
			Rand:         rand.New(rand.NewPCG(seed, uint64(i))), MixingConfig: MixingConfig[T]{Boot: 1,
				BlockSteps:      f.steps,
				SnapshotTimeout: f.wait,
				MaxSilentWaits:  3, RepeatInterval: 50 * time.Millisecond, DrainTimeout: f.drain}}}
		for j := range n {
			if w, ok := weights[[2]int{min(i, j), max(i, j)}]; ok && i != j {
				nb := Neighbor{ID: id(j), MixingWeight: w, ClipBound: f.clip, Boot: 1}
				if !f.open {
					nb.PublicKey = l.keys(nb.ID).DevicePrivateKey.PublicKey().Bytes()
				}
				a.cfg.Neighbors = append(a.cfg.Neighbors, nb)
			}
		}
		x := make([]T, d)
		for k := range x {
			x[k] = T(l.rng.NormFloat64())
		}
		l.nodes = append(l.nodes, a)
		l.boot(a, x)
	}
	return l
}

// boot starts or restarts the process of a node with the parameters x.
func (l *links[T]) boot(a *node[T], x []T) {
	a.trace = conservation.New[T](a.cfg.Self)
	a.cfg.Trace = a.trace
	a.x, a.dead, a.done, a.set = x, false, false, time.Time{}
	a.base = make([]float64, len(x))
	for k := range x {
		a.base[k] = float64(x[k])
	}
	if !l.fate.open {
		a.cfg.Keys = l.keys(a.cfg.Self)
	}
	var err error
	if a.ex, err = newMessageExchange(a.cfg, x); err != nil {
		l.t.Fatal(err)
	}
	l.after(0, func() { l.step(a, Start{}) })
}

// keys returns sealing keys with a fixed device key for each agent id and new random bytes.
func (l *links[T]) keys(id wire.AgentID) *SealingKeys {
	private, err := DeriveDeviceKey([]byte(id))
	if err != nil {
		l.t.Fatal(err)
	}
	l.keyed++
	rng := rand.NewChaCha8([32]byte{l.keyed})
	k := &SealingKeys{DevicePrivateKey: private}
	_, _ = rng.Read(k.SenderKey[:])
	_, _ = rng.Read(k.WrappingSalt[:])
	return k
}

func (l *links[T]) after(d time.Duration, do func()) {
	at := l.now.Add(max(0, d))
	i, _ := slices.BinarySearchFunc(l.agenda, at, func(a arrival, at time.Time) int {
		if a.at.After(at) {
			return 1
		}
		return -1
	})
	l.agenda = slices.Insert(l.agenda, i, arrival{at, do})
}

func (l *links[T]) upTo(d time.Duration) time.Duration {
	return time.Duration(l.rng.Int64N(int64(d) + 1))
}

// run processes events until the agenda is empty, or until it has processed the number of events given by most.
func (l *links[T]) run(most int) {
	for range most {
		if len(l.agenda) == 0 {
			return
		}
		next := l.agenda[0]
		l.agenda, l.now = l.agenda[1:], next.at
		next.do()
	}
}

// rest processes the simulated events until the queue of events is empty.
func (l *links[T]) rest() {
	l.t.Helper()
	if l.run(1e6); len(l.agenda) > 0 {
		l.t.Fatal("the exchanges do not come to rest")
	}
}

func (l *links[T]) step(a *node[T], ev Event) {
	if a.dead {
		return
	}
	for _, e := range a.ex.Step(l.now, ev) {
		switch e := e.(type) {
		case computeLocalStep:
			l.compute(a, e)
		case PublishMessage:
			l.noteSeal(a, e.Payload)
			for _, nb := range a.cfg.Neighbors {
				l.send(nb.ID, e.Payload)
			}
		case mixingEnded:
			a.done, a.seen = true, e.EdgeMeasurements
		}
	}
	a.mostKept = max(a.mostKept, len(a.ex.sealedPartsByStep))
	if at, ok := a.ex.Deadline(); ok && !at.Equal(a.set) && !a.dead {
		ex := a.ex
		a.set = at
		l.after(at.Sub(l.now), func() {
			if a.ex == ex && a.set.Equal(at) {
				a.set = time.Time{}
				l.step(a, Tick{})
			}
		})
	}
}

// send delivers a message to a neighbour. At random, it loses, delays or duplicates the message.
func (l *links[T]) send(to wire.AgentID, payload []byte) {
	a := l.nodes[slices.IndexFunc(l.nodes, func(a *node[T]) bool { return a.cfg.Self == to })]
	copies := 1
	if l.rng.Float64() < l.fate.dup {
		copies = 2
	}
	for range copies {
		if l.rng.Float64() < l.fate.loss {
			continue
		}
		d := l.upTo(l.fate.delay)
		if l.fate.late {
			d += l.fate.wait + l.fate.compute
		}
		m := slices.Clone(payload)
		l.after(d, func() { l.step(a, MessageReceived{m}) })
	}
}

// noteSeal checks that the same key and nonce are never used for two different texts.
func (l *links[T]) noteSeal(a *node[T], payload []byte) {
	h, rest, err := wire.DecodePeerMessageHeader(payload)
	if err != nil {
		l.t.Fatal(err)
	}
	if a.cfg.Keys == nil || h.Type == wire.PeerGreeting {
		return
	}
	n := sealNonce(h.Type, 0, 0)
	if s, _, err := wire.DecodeSnapshotPart(rest); err == nil && h.Type == wire.PeerSnapshot {
		n = sealNonce(h.Type, s.PartIndex, s.Step)
	} else if c, _, err := wire.DecodePeerControl(rest); err == nil {
		n = sealNonce(h.Type, 0, c.SealCounter)
	}
	key := fmt.Sprintf("%x %x", a.cfg.Keys.SenderKey, n)
	if old, ok := l.seals[key]; ok && !bytes.Equal(old, payload) {
		l.t.Fatalf("%s seals twice with one nonce", h.Sender)
	}
	l.seals[key] = slices.Clone(payload)
}

// compute performs a local step of a node, or stops the node.
func (l *links[T]) compute(a *node[T], e computeLocalStep) {
	if a == l.nodes[0] && e.Step == l.fate.killAt && a.cfg.Boot == 1 {
		a.dead = true
		if l.fate.restart > 0 {
			l.after(l.fate.restart, func() {
				a.cfg.Boot, a.cfg.JoinTimeout = 2, 10*time.Second
				for k := range a.cfg.Neighbors {
					a.cfg.Neighbors[k].Boot = 0
				}
				l.boot(a, slices.Repeat([]T{1e6}, len(a.x))) // The restarted agent has lost its parameters.
			})
		}
		return
	}
	for k := range a.x {
		before := float64(a.x[k])
		if a == l.nodes[0] && l.fate.still {
			a.x[k] = 1
		}
		a.x[k] -= T(l.fate.gradient * l.rng.NormFloat64())
		a.base[k] += float64(a.x[k]) - before
	}
	ex := a.ex
	l.after(l.upTo(l.fate.compute), func() {
		if a.ex == ex {
			l.step(a, LocalStepTaken{})
		}
	})
}

func (l *links[T]) alive() []*node[T] {
	return slices.DeleteFunc(slices.Clone(l.nodes), func(a *node[T]) bool { return a.dead })
}

// spread returns the square root of Σ‖x_i − x̄‖² over the running nodes, where x_i are the parameters of node i and x̄
// is their mean.
func (l *links[T]) spread() float64 {
	var sum float64
	alive := l.alive()
	for k := range alive[0].x {
		mean := 0.0
		for _, a := range alive {
			mean += float64(a.x[k]) / float64(len(alive))
		}
		for _, a := range alive {
			sum += math.Pow(float64(a.x[k])-mean, 2)
		}
	}
	return math.Sqrt(sum)
}

// drift returns the change of the sum of all parameters over the running nodes, without the changes made by their local
// steps.
func (l *links[T]) drift() float64 {
	var all []conservation.BlockSums
	for _, a := range l.alive() {
		b := a.trace.Sums()
		for k := range b.LocalStepSum {
			if own := a.base[k] - b.Start[k]; a.done && math.Abs(b.LocalStepSum[k]-own) > 1e-9 {
				l.t.Fatalf("%s: local steps of %v were traced, %v were taken", b.ID, b.LocalStepSum[k], own)
			}
		}
		all = append(all, b)
	}
	drift, err := conservation.Drift(all)
	if err != nil {
		l.t.Fatal(err)
	}
	return drift
}
