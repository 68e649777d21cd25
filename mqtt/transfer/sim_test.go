package transfer

import (
	"bytes"
	"container/heap"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// world is a simulated clock: callbacks in the order of (time, sequence).
type world struct {
	t     *testing.T
	rng   *rand.Rand
	now   time.Time
	seq   int
	queue callbacks
	log   []string
	weather
}

// weather is what the transport does to messages.
type weather struct {
	loss, double, corrupt float64
	delay                 time.Duration // up to; messages overtake each other within it
	busy                  float64       // of the timers of the hosts, which then ring up to 20 s late
}

type callback struct {
	at  time.Time
	seq int
	run func()
}

type callbacks []callback

func (q callbacks) Len() int { return len(q) }
func (q callbacks) Less(i, j int) bool {
	return q[i].at.Before(q[j].at) || q[i].at.Equal(q[j].at) && q[i].seq < q[j].seq
}
func (q callbacks) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *callbacks) Push(x any)   { *q = append(*q, x.(callback)) }
func (q *callbacks) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

func newWorld(t *testing.T, seed uint64, w weather) *world {
	return &world{t: t, rng: seeded(seed), now: epoch, weather: w}
}

// randomWeather has a loss of 0 to 40 %.
func randomWeather(rng *rand.Rand) weather {
	return weather{
		loss: 0.4 * rng.Float64(), double: 0.2 * rng.Float64(), corrupt: 0.1 * rng.Float64(),
		delay: time.Millisecond << rng.IntN(15),
		busy:  0.2 * rng.Float64(),
	}
}

func (w *world) at(at time.Time, run func()) {
	w.seq++
	heap.Push(&w.queue, callback{at, w.seq, run})
}

func (w *world) after(d time.Duration, run func()) { w.at(w.now.Add(d), run) }

func (w *world) logf(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%v ", w.now.Sub(epoch))+fmt.Sprintf(format, args...))
}

// carry takes a message through the weather.
func (w *world) carry(deliver func()) {
	copies := 1
	if w.rng.Float64() < w.double {
		copies = 2
	}
	for range copies {
		if w.rng.Float64() >= w.loss {
			w.after(time.Duration(w.rng.Int64N(int64(w.delay)+1)), deliver)
		}
	}
}

// spoil returns message, at times with something wrong in it.
func (w *world) spoil(message []byte) []byte {
	if w.rng.Float64() >= w.corrupt {
		return message
	}
	message = bytes.Clone(message)
	if w.rng.IntN(2) == 0 {
		return message[:w.rng.IntN(len(message))]
	}
	message[w.rng.IntN(len(message))] ^= byte(1 + w.rng.IntN(255))
	return message
}

// run lets time pass until done or the horizon, and reports done.
func (w *world) run(horizon time.Duration, done func() bool) bool {
	for len(w.queue) > 0 && !done() {
		next := heap.Pop(&w.queue).(callback)
		if next.at.Sub(epoch) > horizon {
			return false
		}
		w.now = next.at
		next.run()
	}
	return done()
}

// alarm is a host's one timer: it ticks at the deadline it was last set to,
// and at times when it is no longer wanted, as real ones do.
type alarm struct{ set time.Time }

func (a *alarm) arm(w *world, at time.Time, ok bool, tick func()) {
	if !ok || at.Equal(a.set) {
		return
	}
	a.set = at
	ring := at
	if at.Before(w.now) {
		ring = w.now
	}
	if w.rng.Float64() < w.busy {
		ring = ring.Add(time.Duration(w.rng.Int64N(int64(20 * time.Second))))
	}
	w.at(ring, func() {
		if a.set.Equal(at) {
			a.set = time.Time{}
		}
		tick()
	})
}

// twice runs a scenario twice and holds the transcripts against each other.
func twice(t *testing.T, scenario func() []string) {
	t.Helper()
	t.Helper()
	first, second := scenario(), scenario()
	for i := range max(len(first), len(second)) {
		if i >= len(first) || i >= len(second) || first[i] != second[i] {
			t.Fatalf("two runs of one scenario part at line %d of %d and %d", i, len(first), len(second))
		}
	}
}

// seeds is how many worlds each property is held against.
const seeds = 120
