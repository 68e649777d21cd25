package transfer

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// links simulates a clock and links that lose, duplicate and reorder messages.
type links struct {
	t            *testing.T
	rng          *rand.Rand
	now          time.Time
	agenda       []arrival // ascending; in insertion order for equal times
	loss, double float64
}

type arrival struct {
	at time.Time
	do func()
}

func newLinks(t *testing.T, seed uint64) *links { return &links{t: t, rng: seeded(seed), now: epoch} }

func (l *links) after(d time.Duration, do func()) {
	at := l.now.Add(d)
	i, _ := slices.BinarySearchFunc(l.agenda, at, func(a arrival, at time.Time) int {
		if a.at.After(at) {
			return 1
		}
		return -1
	})
	l.agenda = slices.Insert(l.agenda, i, arrival{at, do})
}

// upTo returns a random duration less than d.
func (l *links) upTo(d time.Duration) time.Duration { return time.Duration(l.rng.Int64N(int64(d))) }

// run advances the clock until done returns true. It fails after a simulated day.
func (l *links) run(done func() bool) {
	l.t.Helper()
	for !done() {
		if len(l.agenda) == 0 || l.now.Sub(epoch) > 24*time.Hour {
			l.t.Fatalf("not done in %v", l.now.Sub(epoch))
		}
		next := l.agenda[0]
		l.agenda = l.agenda[1:]
		l.now = next.at
		next.do()
	}
}

// way is one direction of a simulated link.
type way struct {
	*links
	rate  LinkRate
	free  time.Time     // time at which the link has transmitted all sent data
	ahead time.Duration // maximum queueing time so far
}

func (w *way) send(bytes int, deliver func()) {
	if w.free.Before(w.now) {
		w.free = w.now
	}
	w.free = w.free.Add(w.rate.sendTime(bytes))
	w.ahead = max(w.ahead, w.free.Sub(w.now))
	copies := 1
	if w.rng.Float64() < w.double {
		copies = 2
	}
	for range copies {
		if w.rng.Float64() >= w.loss {
			w.after(w.free.Sub(w.now)+w.upTo(50*time.Millisecond), deliver)
		}
	}
}

// hosted returns a function that steps a machine, performs its effects and ticks it at its deadlines until over returns
// true.
func hosted[E, F any](l *links, m machine[E, F], tick E, over func() bool, perform func(F)) func(E) {
	var set time.Time
	var step func(E)
	step = func(ev E) {
		if over() {
			return
		}
		for _, e := range m.Step(l.now, ev) {
			perform(e)
		}
		if at, ok := m.Deadline(); ok && !at.Equal(set) {
			set = at
			l.after(max(0, at.Sub(l.now)), func() {
				if set.Equal(at) {
					set = time.Time{}
				}
				step(tick)
			})
		}
	}
	return step
}

// uploads simulates a coordinator and the agents that send updates to it.
type uploads struct {
	*links
	cfg      ReceiverConfig
	ahead    int             // number of chunks that an agent sends without a credit
	receiver *UpdateReceiver // receiver of the current process
	step     func(ReceiveEvent)
	agents   []*upload
	stored   []wire.AgentID
}

type upload struct {
	id       wire.AgentID
	payload  []byte
	manifest wire.Manifest
	disk     *disk    // disk of the coordinator
	rate     LinkRate // link rate assumed by the agent
	line     way
	boot     wire.Epoch
	step     func(SendEvent)
	sent     int
	accepted bool
	done     bool
}

func newUploads(l *links, cfg ReceiverConfig) *uploads {
	u := &uploads{links: l, cfg: cfg}
	u.restart()
	return u
}

func (u *uploads) allDone() bool {
	return !slices.ContainsFunc(u.agents, func(a *upload) bool { return !a.done })
}

// restart starts a new coordinator process.
func (u *uploads) restart() {
	r := NewUpdateReceiver(u.cfg)
	u.receiver = r
	u.step = hosted(u.links, r, ReceiveEvent(Tick{}), func() bool { return u.receiver != r }, u.perform)
}

// add adds an agent with an update on a link of the given rate.
func (u *uploads) add(payload []byte, m wire.Manifest, known, line LinkRate, spread time.Duration) {
	a := &upload{id: wire.AgentID(fmt.Sprintf("a%03d", len(u.agents))), payload: payload, manifest: m, rate: known,
		line: way{links: u.links, rate: line}, disk: newDisk(m)}
	u.agents = append(u.agents, a)
	u.boot(a, spread)
}

// boot starts a new process of an agent.
func (u *uploads) boot(a *upload, spread time.Duration) {
	a.boot++
	boot, s := a.boot, NewUpdateSender(a.manifest, a.payload, spread, u.ahead, a.rate, seeded(u.rng.Uint64()))
	a.step = hosted(u.links, s, SendEvent(Tick{}), func() bool { return a.boot != boot }, func(e SendEffect) {
		switch e := e.(type) {
		case SendManifest:
			a.line.send(32*len(a.manifest.ChunkDigests)+len(s.InlinePayload()), func() {
				u.step(UpdateOffer{Agent: a.id, AgentBootEpoch: boot, Manifest: a.manifest,
					InlinePayload:     s.InlinePayload(),
					UnsolicitedChunks: e.UnsolicitedChunks})
				if a.accepted {
					u.answer(a, UpdateAccepted{wire.UpdateAccepted{Update: a.manifest.Hash}})
				}
			})
		case SendChunk:
			a.sent++
			chunk := s.ChunkMessage(e.ChunkIndex)
			a.line.send(len(chunk), func() { u.step(ChunkReceived{a.id, UploadID(a.manifest.Hash), chunk}) })
		case UploadFinished:
			a.done = true
		}
	})
	a.step(Start{})
}

func (u *uploads) answer(a *upload, ev SendEvent) {
	(&way{links: u.links}).send(0, func() { a.step(ev) })
}

func (u *uploads) agent(id wire.AgentID) *upload {
	return u.agents[slices.IndexFunc(u.agents, func(a *upload) bool { return a.id == id })]
}

func (u *uploads) perform(e ReceiveEffect) {
	switch e := e.(type) {
	case GrantCredit:
		u.answer(u.agent(e.Agent), CreditGranted{e.Credit})
	case OpenStorage:
		a, step := u.agent(e.Agent), u.step
		u.after(u.upTo(100*time.Millisecond), func() {
			if a.disk.full {
				step(StorageOpened{e.Agent, e.Manifest.Hash, nil, errFull})
			} else {
				step(StorageOpened{e.Agent, e.Manifest.Hash, a.disk.open(), nil})
			}
		})
	case UpdateComplete:
		a, step := u.agent(e.Agent), u.step
		if !bytes.Equal(bytesOf(e.Storage), a.payload) {
			u.t.Fatalf("%s: the result is not what was sent", a.id)
		}
		if a.disk.wantOnce(u.t); e.Storage.Close() != nil {
			u.t.Fatalf("%s: the update cannot be closed", a.id)
		}
		u.after(20*time.Millisecond, func() {
			a.accepted = true
			u.stored = append(u.stored, a.id)
			u.answer(a, UpdateAccepted{wire.UpdateAccepted{Update: e.Digest}})
			step(UpdateReleased{a.id})
		})
	case RefuseUpdate:
		u.t.Fatalf("%s is refused: %v", e.Agent, e.Reason)
	}
	checkReceiver(u.t, u.receiver)
}

// download simulates an agent that pulls a blob.
type download struct {
	*links
	cfg      PullerConfig
	ref      wire.BlobRef
	retained map[string][]byte
	blob     []byte
	disk     *disk
	line     way
	life     int
	step     func(PullEvent)
	puller   *BlobPuller
	parts    int
	done     bool
	err      error
}

func newDownload(l *links, blob []byte, cfg PullerConfig, line LinkRate) *download {
	d := &download{links: l, cfg: cfg, blob: blob, line: way{links: l, rate: line}, disk: newDisk(manifestOf(blob))}
	d.ref, d.retained = published(l.t, blob)
	d.begin()
	return d
}

// begin starts a new process, which opens the stored chunks of the blob.
func (d *download) begin() {
	d.life++
	life, subs := d.life, subscriptions{}
	d.puller = NewBlobPuller(d.cfg, d.ref, seeded(d.rng.Uint64()))
	over := func() bool { return d.life != life || d.done }
	d.step = hosted(d.links, d.puller, PullEvent(Tick{}), over, func(e PullEffect) {
		subs.apply(d.t, []PullEffect{e}, d.cfg.WindowChunks)
		switch e := e.(type) {
		case SubscribeParts:
			for _, name := range e.Parts {
				if message, ok := d.retained[name]; ok {
					d.parts++
					step := d.step
					d.line.send(len(message), func() { step(PartReceived{name, message, false}) })
				}
			}
		case OpenStorage:
			step := d.step
			d.after(d.upTo(time.Second), func() { step(StorageOpened{BlobDigest: d.ref.Hash, Storage: d.disk.open()}) })
		case PullDone:
			if !bytes.Equal(bytesOf(e.Storage), d.blob) {
				d.t.Fatal("the result is not what was published")
			}
			if d.disk.wantOnce(d.t); e.Storage.Close() != nil {
				d.t.Fatal("the blob cannot be closed")
			}
			d.done = true
		case PullFailed:
			d.done, d.err = true, e.Err
		}
	})
	d.step(Start{})
}

// TestTransfersOnLossyLinks checks that every update and blob arrives complete and within the limits, and that no chunk
// is stored twice, despite lost, duplicated and reordered messages and restarts.
func TestTransfersOnLossyLinks(t *testing.T) {
	var met ReceiverStats // counters of all runs, which show how bad the links were
	for seed := range uint64(40) {
		l := newLinks(t, seed)
		l.loss, l.double = 0.3*l.rng.Float64(), 0.2*l.rng.Float64()
		cfg := tight()
		cfg.MaxUpdateBytes, cfg.MaxBufferedBytes, cfg.MaxEmptyLeases = 9*wire.MaxChunkBytes, 12*wire.MaxChunkBytes, 8
		u := newUploads(l, cfg)
		u.ahead = l.rng.IntN(5)
		for i := range uint64(4) {
			p := blobOf(seed<<8+i, 1+l.rng.IntN(cfg.MaxUpdateBytes)>>l.rng.IntN(3))
			u.add(p, manifestOf(p), 0, 0, 5*time.Second)
		}
		pull := DefaultPullerConfig()
		pull.WindowChunks, pull.MaxStalls = 3, 60
		d := newDownload(l, blobOf(seed, 1+l.rng.IntN(12*wire.MaxChunkBytes)), pull, 0)
		for range 12 {
			l.after(l.upTo(time.Minute), func() { u.trouble(d) })
		}
		l.run(func() bool { return u.allDone() && d.done })
		if d.err != nil {
			t.Fatal(d.err)
		}
		s := u.receiver.Stats()
		met.ExpiredLeases, met.DuplicateChunks, met.ResumedChunks = met.ExpiredLeases+s.ExpiredLeases,
			met.DuplicateChunks+s.DuplicateChunks,
			met.ResumedChunks+s.ResumedChunks
		met.StorageFailures, met.UnknownChunks = met.StorageFailures+s.StorageFailures,
			met.UnknownChunks+s.UnknownChunks
	}
	if met.ExpiredLeases == 0 || met.DuplicateChunks == 0 || met.ResumedChunks == 0 || met.StorageFailures == 0 ||
		met.UnknownChunks == 0 {
		t.Errorf("some of the troubles never came: %+v", met)
	}
}

// trouble causes one random failure of a process, link or disk.
func (u *uploads) trouble(d *download) {
	a := u.agents[u.rng.IntN(len(u.agents))]
	switch u.rng.IntN(6) {
	case 0:
		u.restart()
		for _, a := range u.agents {
			a.disk.powerCut(u.rng)
		}
	case 1:
		if !a.done {
			u.boot(a, time.Second)
		}
	case 2:
		a.disk.full = true
		u.after(u.upTo(time.Minute), func() { a.disk.full = false })
	case 3:
		a.step(LinkDown{})
		u.after(u.upTo(time.Minute), func() { a.step(LinkUp{}) })
	case 4:
		d.disk.full = true
		u.after(u.upTo(40*time.Second), func() { d.disk.full = false })
	default:
		if !d.done {
			d.disk.powerCut(u.rng)
			d.begin()
		}
	}
}

// TestManyUploadsAreFair checks uploads of 2 MB by a hundred agents with buffer space for three updates. The agents
// must finish in order of arrival, and no lease of a credit may expire on a good link.
func TestManyUploadsAreFair(t *testing.T) {
	const agents, size = 100, 2 << 20
	cfg := DefaultReceiverConfig()
	cfg.MaxUpdateBytes, cfg.MaxBufferedBytes = size, 3*size
	u := newUploads(newLinks(t, 1), cfg)
	blob := blobOf(1, size)
	m := manifestOf(blob)
	for i := range agents {
		u.after(time.Duration(i)*100*time.Millisecond, func() { u.add(blob, m, 0, 0, 0) })
	}
	u.run(func() bool { return len(u.agents) == agents && u.allDone() })
	for place, id := range u.stored {
		if turn := slices.IndexFunc(u.agents, func(a *upload) bool { return a.id == id }); place < turn-2 ||
			place > turn+4 {
			t.Errorf("%s came as number %d and was done as number %d", id, turn, place)
		}
	}
	if s := u.receiver.Stats(); s.CompletedUpdates != agents || s.DroppedTransfers != 0 || s.ExpiredLeases != 0 {
		t.Errorf("%+v", s)
	}
}

// TestTransfersOnSlowLinks checks links on which a chunk takes as long as several leases of a credit. No chunk may be
// sent twice, and no time may be lost (R13).
func TestTransfersOnSlowLinks(t *testing.T) {
	const chunks = 40
	blob := blobOf(1, chunks*wire.MaxChunkBytes)
	m := manifestOf(blob)
	late := func(took, least time.Duration) bool { return took > least+least/10+20*time.Second }
	for _, tt := range []struct {
		line, known LinkRate // actual link rate, and the rate assumed by the agent
		again       bool     // whether the test expects that chunks are sent again
	}{
		{1000, 1000, false}, {20_000, 20_000, false}, {200_000, 20_000, false}, {0, 20_000, false},
		{10_000, 20_000, false}, {5_000, 20_000, false}, // the actual rate is lower than the assumed rate
		{20_000, 0, true}, // if the agent does not know the link rate, it sends chunks again
	} {
		u := newUploads(newLinks(t, 1), DefaultReceiverConfig())
		u.add(blob, m, tt.known, tt.line, 0)
		u.run(u.allDone)
		if again := u.agents[0].sent - chunks; (again > 0) != tt.again {
			t.Errorf("%+v: %d chunks were sent again", tt, again)
		}
		if took := u.now.Sub(epoch); !tt.again && late(took, tt.line.sendTime(chunks*maxChunkMessageBytes)) {
			t.Errorf("%+v: took %v", tt, took)
		}
	}
	// A window of chunks must arrive within the PINGRESP timeout: the time of four chunks, or 30 s.
	for _, rate := range []LinkRate{0, 1_000_000, 20_000, 2000, 1000} {
		d := newDownload(newLinks(t, 1), blob, DefaultPullerConfig().ForLinkRate(rate), rate)
		d.run(func() bool { return d.done })
		if most := max(30*time.Second, 4*rate.sendTime(wire.MaxMessage)); d.line.ahead > most {
			t.Errorf("%d B/s: %v of chunks on the line, want at most %v", rate, d.line.ahead, most)
		}
		if s := d.puller.Stats(); d.err != nil || d.parts != chunks+1 || s.Stalls != 0 {
			t.Errorf("%d B/s: %v, %d parts were sent, %d stalls", rate, d.err, d.parts, s.Stalls)
		}
		if took := d.now.Sub(epoch); late(took, rate.sendTime(chunks*maxChunkMessageBytes)) {
			t.Errorf("%d B/s: took %v", rate, took)
		}
	}
}
