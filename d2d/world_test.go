package d2d

import (
	"bytes"
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// fate is what the world does to messages and agents.
type fate struct {
	loss, dup  float64
	delay      time.Duration // most of a message; they overtake each other
	compute    time.Duration // most of a local step
	gradient   float64       // size of the random local steps
	killAt     uint64        // the step at which node 0 dies; 0 = never
	restart    time.Duration // after which it comes back with a new start; 0 = never
	wait       time.Duration
	steps      uint64
	drain      time.Duration
	everyLater bool // every message takes at least one step's wait
	bytes      bool // messages travel as an Exchange writes them
	open       bool // not sealed
	codec      spec.Codec
}

// world runs mixers on one clock, with events in the order of (time, sequence).
type world[T wire.Float] struct {
	t     *testing.T
	fate  fate
	rng   *rand.Rand
	now   time.Time
	queue eventQueue
	seq   int
	keyed uint64 // keys made so far
	nodes []*worldNode[T]
	ids   []wire.AgentID
	seals map[string][]byte // what was sealed, by key and nonce
}

type worldNode[T wire.Float] struct {
	id      wire.AgentID
	boot    wire.Epoch
	cfg     Config[T]
	x       []T
	base    []float64 // x_0 − Σηg
	m       machine
	kept    map[uint64]Send[T] // the sealed snapshots
	dead    bool
	done    bool
	maxKept int
	due     time.Time // its machine's deadline
	waits   bool      // for it
}

// machine is a Mixer, or an Exchange around one.
type machine interface {
	Step(now time.Time, ev Event) []Effect
	Deadline() (time.Time, bool)
	Stats() Stats
	Books() Books
}

type worldEvent struct {
	at   time.Time
	seq  int
	node int
	boot wire.Epoch
	ev   Event
	do   func()
}

type eventQueue []*worldEvent

func (q eventQueue) Len() int { return len(q) }
func (q eventQueue) Less(i, j int) bool {
	if !q[i].at.Equal(q[j].at) {
		return q[i].at.Before(q[j].at)
	}
	return q[i].seq < q[j].seq
}
func (q eventQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *eventQueue) Push(x any)   { *q = append(*q, x.(*worldEvent)) }
func (q *eventQueue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

// newWorld has n nodes with d parameters each on the edges of weights.
func newWorld[T wire.Float](t *testing.T, seed uint64, n, d int, weights map[[2]int]float64, f fate) *world[T] {
	w := &world[T]{t: t, fate: f, rng: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(0, 0), seals: map[string][]byte{}}
	for i := range n {
		w.ids = append(w.ids, wire.AgentID(fmt.Sprintf("n%03d", i)))
	}
	for i := range n {
		cfg := Config[T]{Boot: 1, Steps: f.steps, Wait: f.wait, Patience: 3, Repeat: 50 * time.Millisecond,
			Drain: f.drain, Ledger: true}
		for j := range n {
			if x, ok := weights[[2]int{min(i, j), max(i, j)}]; ok && i != j {
				cfg.Neighbors = append(cfg.Neighbors, Neighbor{ID: w.ids[j], Weight: x, Boot: 1})
			}
		}
		x := make([]T, d)
		for k := range x {
			x[k] = T(w.rng.NormFloat64())
		}
		w.nodes = append(w.nodes, &worldNode[T]{id: w.ids[i], cfg: cfg})
		w.boot(i, 1, x)
	}
	return w
}

func (w *world[T]) boot(i int, boot wire.Epoch, x []T) {
	n := w.nodes[i]
	n.boot, n.x, n.dead, n.done, n.waits = boot, x, false, false, false
	n.base = make([]float64, len(x))
	for k := range x {
		n.base[k] = float64(x[k])
	}
	n.cfg.Boot = boot
	if boot > 1 {
		n.cfg.Neighbors = slices.Clone(n.cfg.Neighbors)
		for k := range n.cfg.Neighbors {
			n.cfg.Neighbors[k].Boot = 0
		}
	}
	n.m, n.kept = w.machine(n, x), map[uint64]Send[T]{}
	w.at(0, i, Start{})
}

func (w *world[T]) machine(n *worldNode[T], x []T) machine {
	if !w.fate.bytes {
		return New(n.cfg, x)
	}
	cfg := ExchangeConfig[T]{Config: n.cfg, Self: n.id, Run: 1, Round: 2, Codec: w.fate.codec,
		Rand: rand.New(rand.NewPCG(uint64(len(n.id)), 7))}
	cfg.Neighbors = slices.Clone(cfg.Neighbors)
	if !w.fate.open {
		cfg.Keys = w.keys(n.id)
		for i, nb := range cfg.Neighbors {
			cfg.Neighbors[i].Key = w.keys(nb.ID).Private.PublicKey().Bytes()
		}
	}
	e, err := NewExchange(cfg, x)
	if err != nil {
		w.t.Fatal(err)
	}
	return e
}

// keys has one device key for an id, and new random bytes each time.
func (w *world[T]) keys(id wire.AgentID) *Keys {
	private, err := DeviceKey([]byte(id))
	if err != nil {
		w.t.Fatal(err)
	}
	w.keyed++
	rng := rand.NewChaCha8([32]byte{byte(w.keyed), byte(w.keyed >> 8)})
	k := &Keys{Private: private}
	_, _ = rng.Read(k.Sender[:])
	_, _ = rng.Read(k.Salt[:])
	return k
}

func (w *world[T]) at(after time.Duration, node int, ev Event) {
	w.seq++
	heap.Push(&w.queue, &worldEvent{at: w.now.Add(after), seq: w.seq, node: node, boot: w.nodes[node].boot, ev: ev})
}

// send carries a message to a neighbour, or does not.
func (w *world[T]) send(to wire.AgentID, ev Event) {
	i := slices.Index(w.ids, to)
	for range 1 + w.chance(w.fate.dup) {
		if w.chance(w.fate.loss) == 1 {
			continue
		}
		after := time.Duration(w.rng.Int64N(int64(w.fate.delay) + 1))
		if w.fate.everyLater {
			after += w.fate.wait + w.fate.compute
		}
		w.at(after, i, ev)
	}
}

func (w *world[T]) chance(p float64) int {
	if w.rng.Float64() < p {
		return 1
	}
	return 0
}

// run works until nothing is left to do, or most events have been seen.
func (w *world[T]) run(most int) {
	for range most {
		if !w.tick() {
			return
		}
	}
	if w.fate.steps > 0 {
		w.t.Fatalf("the world does not come to rest after %d events", most)
	}
}

func (w *world[T]) tick() bool {
	next, node := w.earliestDeadline()
	if len(w.queue) > 0 && (node < 0 || !next.Before(w.queue[0].at)) {
		e := heap.Pop(&w.queue).(*worldEvent)
		w.now = e.at
		if e.do != nil {
			e.do()
		} else if n := w.nodes[e.node]; !n.dead && n.boot == e.boot || isMessage[T](e.ev) && !n.dead {
			w.step(e.node, e.ev)
		}
		return true
	}
	if node < 0 {
		return false
	}
	w.now = next
	w.step(node, Tick{})
	return true
}

func isMessage[T wire.Float](ev Event) bool {
	switch ev.(type) {
	case Received[T], Asked, Finished, Greeted, Message:
		return true
	}
	return false
}

func (w *world[T]) earliestDeadline() (time.Time, int) {
	var first time.Time
	node := -1
	for i, n := range w.nodes {
		if n.waits && !n.dead && (node < 0 || n.due.Before(first)) {
			first, node = n.due, i
		}
	}
	if node >= 0 && first.Before(w.now) {
		first = w.now
	}
	return first, node
}

func (w *world[T]) step(i int, ev Event) {
	n := w.nodes[i]
	effects := n.m.Step(w.now, ev)
	n.due, n.waits = n.m.Deadline()
	for _, e := range effects {
		peer := func(to To) Peer { return Peer{n.id, n.boot, to.Boot} }
		switch e := e.(type) {
		case Compute:
			w.compute(i, e)
		case Send[T]:
			e.X = slices.Clone(e.X)
			w.seal(n, e)
			n.kept[e.Step] = e
			n.maxKept = max(n.maxKept, len(n.kept))
			w.deliver(n, e)
		case Resend:
			s, ok := n.kept[e.Step]
			if !ok {
				w.t.Fatalf("%s is to send step %d again, which it has released", n.id, e.Step)
			}
			w.deliver(n, s)
		case Release:
			if _, ok := n.kept[e.Step]; !ok {
				w.t.Fatalf("%s releases step %d twice", n.id, e.Step)
			}
			delete(n.kept, e.Step)
		case Ask:
			w.send(e.To.ID, Asked{peer(e.To), e.To.Seq})
		case Finish:
			w.send(e.To.ID, Finished{peer(e.To), e.To.Seq, e.Applied, e.Drained})
		case Greet:
			w.send(e.To.ID, Greeted{peer(e.To)})
		case Publish:
			w.noteSeals(n, e.Payload)
			for _, nb := range n.cfg.Neighbors {
				w.send(nb.ID, Message{slices.Clone(e.Payload)})
			}
		case Done:
			n.done = true
		}
	}
}

// seal checks that a snapshot of a step is taken once.
func (w *world[T]) seal(n *worldNode[T], s Send[T]) {
	w.once(fmt.Sprintf("%s %d %d", n.id, n.boot, s.Step), nil)
}

// noteSeals checks that no key and nonce ever see two texts.
func (w *world[T]) noteSeals(n *worldNode[T], payload []byte) {
	ex := n.m.(*Exchange[T])
	h, rest, err := wire.DecodePeerHead(payload)
	if err != nil {
		w.t.Fatal(err)
	}
	if ex.own == nil || h.Type == wire.PeerGreeting {
		return
	}
	var part uint16
	var count uint64
	if h.Type == wire.PeerSnapshot {
		s, _, err := wire.DecodeSnapshot(rest)
		if err != nil {
			w.t.Fatal(err)
		}
		part, count = s.Part, s.Step
	} else {
		c, _, err := wire.DecodeControl(rest)
		if err != nil {
			w.t.Fatal(err)
		}
		count = c.Count
	}
	w.once(fmt.Sprintf("%x %x", ex.cfg.Keys.Sender, nonce(h.Type, part, count)), payload)
}

// once fails when there was something else under the key.
func (w *world[T]) once(key string, text []byte) {
	if old, ok := w.seals[key]; ok && (text == nil || !bytes.Equal(old, text)) {
		w.t.Fatalf("%s sealed twice", key)
	}
	w.seals[key] = text
}

func (w *world[T]) deliver(n *worldNode[T], s Send[T]) {
	for _, to := range s.To {
		w.send(to.ID, Received[T]{Peer{n.id, n.boot, to.Boot}, to.Seq, slices.Clone(s.X)})
	}
}

func (w *world[T]) compute(i int, e Compute) {
	n := w.nodes[i]
	if i == 0 && e.Step == w.fate.killAt && n.boot == 1 {
		n.dead = true
		if w.fate.restart > 0 {
			w.seq++
			heap.Push(&w.queue, &worldEvent{at: w.now.Add(w.fate.restart), seq: w.seq, do: func() {
				w.nodes[i].cfg.Join = 10 * time.Second
				w.boot(i, 2, slices.Repeat([]T{1e6}, len(w.nodes[i].x))) // what it has is of no use
			}})
		}
		return
	}
	for k := range n.x {
		before := float64(n.x[k])
		n.x[k] -= T(w.fate.gradient * w.rng.NormFloat64())
		n.base[k] += float64(n.x[k]) - before
	}
	w.at(time.Duration(w.rng.Int64N(int64(w.fate.compute)+1)), i, Stepped{})
}

// spread is the root of Σ‖x_i − x̄‖² over the living.
func (w *world[T]) spread() float64 {
	var sum float64
	d := len(w.nodes[0].x)
	for k := range d {
		mean, n := 0.0, 0.0
		for _, a := range w.nodes {
			if !a.dead {
				mean, n = mean+float64(a.x[k]), n+1
			}
		}
		for _, a := range w.nodes {
			if !a.dead {
				sum += math.Pow(float64(a.x[k])-mean/n, 2)
			}
		}
	}
	return math.Sqrt(sum)
}

// drift is that of the books of the living; their local steps are as the world has recorded them.
func (w *world[T]) drift() float64 {
	var all []Books
	for _, n := range w.nodes {
		if n.dead {
			continue
		}
		b := n.m.Books()
		b.ID = n.id
		for k := range b.Local {
			if own := n.base[k] - b.Start[k]; n.done && math.Abs(b.Local[k]-own) > 1e-9 {
				w.t.Fatalf("%s: local steps of %v in the books, %v were taken", n.id, b.Local[k], own)
			}
		}
		all = append(all, b)
	}
	drift, err := Drift(all)
	if err != nil {
		w.t.Fatal(err)
	}
	return drift
}
