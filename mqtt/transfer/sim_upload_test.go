package transfer

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// uploads is a coordinator and its agents.
type uploads struct {
	*world
	cfg      ReceiverConfig
	rate     Rate // of each agent's uplink, as it knows
	line     Rate // as it is
	receiver *Receiver
	life     int // of the coordinator's process
	alarm    alarm
	agents   []*uploader
	accepted map[wire.AgentID]wire.Digest // on the coordinator's disk
	disks    map[wire.AgentID]*disk       // the same: updates on their way
	handles  map[wire.AgentID]*handle     // of the present life
	offered  []wire.AgentID               // in the order in which the coordinator heard of them
	stored   []wire.AgentID
}

// uploader is an agent's host, and the observer that knows what it may send.
type uploader struct {
	id       wire.AgentID
	payload  []byte
	manifest wire.Manifest
	sender   *Sender
	boot     wire.Epoch
	session  int
	up       bool
	alarm    alarm
	done     bool
	lent     map[int]bool
	until    time.Time
	free     time.Time // when the uplink has carried everything
	chunks   int       // sent
}

func newUploads(w *world, cfg ReceiverConfig, payloads [][]byte, spread time.Duration) *uploads {
	u := &uploads{
		world: w, cfg: cfg, receiver: NewReceiver(cfg), accepted: map[wire.AgentID]wire.Digest{},
		disks: map[wire.AgentID]*disk{}, handles: map[wire.AgentID]*handle{},
	}
	for _, p := range payloads {
		u.add(p, spread)
	}
	return u
}

// add starts an agent with an update.
func (u *uploads) add(p []byte, spread time.Duration) {
	i := len(u.agents)
	a := &uploader{id: wire.AgentID(fmt.Sprintf("agent-%03d", i)), payload: p, up: true}
	if i > 0 && &p[0] == &u.agents[i-1].payload[0] {
		a.manifest = u.agents[i-1].manifest // hashing is most of the test's work
	} else {
		a.manifest = manifestOf(p)
	}
	u.agents = append(u.agents, a)
	u.disks[a.id] = newDisk(a.manifest)
	u.boot(a, spread)
}

// boot starts the agent's process, anew if there was one.
func (u *uploads) boot(a *uploader, spread time.Duration) {
	a.boot++
	a.session++
	a.lent = nil
	a.alarm = alarm{}
	a.sender = NewSender(a.manifest, a.payload, spread, u.rate, seeded(u.rng.Uint64()))
	if !a.up {
		u.stepSender(a, Disconnected{})
	}
	u.stepSender(a, Start{})
}

func (u *uploads) stepSender(a *uploader, ev SendEvent) {
	effects := a.sender.Step(u.now, ev)
	if len(effects) > 0 {
		u.logf("%s: %s", a.id, describe(effects))
	}
	if len(effects) > burst {
		u.t.Fatalf("%s: %d effects in one step", a.id, len(effects))
	}
	for _, e := range effects {
		switch e := e.(type) {
		case SendManifest:
			u.sendManifest(a)
		case SendChunk:
			if !a.up || !a.lent[e.K] || !u.now.Before(a.until) {
				u.t.Fatalf("%s sends chunk %d without credit", a.id, e.K)
			}
			a.chunks++
			message := u.spoil(a.sender.Chunk(e.K))
			u.send(a, len(message), func() { u.stepReceiver(Chunk{a.id, ID(a.manifest.Hash), message}) })
		case Finished:
			if !e.Accepted || u.accepted[a.id] != a.manifest.Hash {
				u.t.Fatalf("%s: %+v, on disk %v", a.id, e, u.accepted[a.id])
			}
			a.done = true
		}
	}
	at, ok := a.sender.Deadline()
	s := a.sender
	a.alarm.arm(u.world, at, ok, func() {
		if a.sender == s {
			u.stepSender(a, Tick{})
		}
	})
}

func (u *uploads) sendManifest(a *uploader) {
	if !a.up {
		u.t.Fatalf("%s sends its manifest without a link", a.id)
	}
	offer := Offer{Agent: a.id, Boot: a.boot, Manifest: a.manifest, Inline: a.sender.Inline()}
	u.send(a, len(offer.Inline)+32*len(a.manifest.Chunks), func() {
		if !slices.Contains(u.offered, a.id) {
			u.offered = append(u.offered, a.id)
		}
		if u.accepted[a.id] == a.manifest.Hash {
			u.answer(a, AcceptedBy{wire.Accepted{Update: a.manifest.Hash}})
			return
		}
		u.stepReceiver(offer)
	})
}

// send takes a message over the agent's uplink, one after the other.
func (u *uploads) send(a *uploader, bytes int, deliver func()) {
	if a.free.Before(u.now) {
		a.free = u.now
	}
	a.free = a.free.Add(u.line.time(bytes))
	u.at(a.free, func() { u.carry(deliver) })
}

// answer sends to the agent, whose clean session forgets what was on its way.
func (u *uploads) answer(a *uploader, ev SendEvent) {
	session := a.session
	u.carry(func() {
		if !a.up || a.session != session {
			return
		}
		if c, ok := ev.(CreditGranted); ok {
			a.lent, a.until = map[int]bool{}, u.now.Add(time.Duration(c.Lease)*time.Millisecond)
			for _, r := range c.Chunks {
				for k := r.First; k <= r.Last; k++ {
					a.lent[int(k)] = true
				}
			}
		}
		u.stepSender(a, ev)
	})
}

func (u *uploads) stepReceiver(ev ReceiveEvent) {
	effects := u.receiver.Step(u.now, ev)
	if len(effects) > 0 {
		u.logf("coordinator: %s", describe(effects))
	}
	checkReceiver(u.t, u.receiver)
	for _, e := range effects {
		switch e := e.(type) {
		case Grant:
			c, err := wire.DecodeCredit(e.Credit.Body())
			if err != nil || c.Lease == 0 || len(c.Chunks) == 0 {
				u.t.Fatalf("%s gets credit %+v: %v", e.Agent, e.Credit, err)
			}
			for _, r := range c.Chunks {
				for k := r.First; k <= r.Last; k++ {
					if u.handles[e.Agent].have[k] {
						u.t.Fatalf("%s: chunk %d is on disk and is asked for", e.Agent, k)
					}
				}
			}
			u.answer(u.agent(e.Agent), CreditGranted{c})
		case Open:
			life := u.life
			u.after(time.Duration(u.rng.Int64N(int64(100*time.Millisecond))), func() { u.open(e, life) })
		case Complete:
			u.store(e)
		case Refuse:
			u.t.Fatalf("%s is refused: %v", e.Agent, e.Reason)
		}
	}
	at, ok := u.receiver.Deadline()
	r := u.receiver
	u.alarm.arm(u.world, at, ok, func() {
		if u.receiver == r {
			u.stepReceiver(Tick{})
		}
	})
}

func (u *uploads) agent(id wire.AgentID) *uploader {
	i := slices.IndexFunc(u.agents, func(a *uploader) bool { return a.id == id })
	return u.agents[i]
}

// open is the host's answer, which may come after the process that asked, and
// at times is an error.
func (u *uploads) open(e Open, life int) {
	switch h := u.disks[e.Agent].open(); {
	case u.life != life:
		_ = h.Close()
	case u.disks[e.Agent].full:
		_ = h.Close()
		u.stepReceiver(Opened{e.Agent, e.Manifest.Hash, nil, errFull})
	default:
		u.handles[e.Agent] = h
		u.stepReceiver(Opened{e.Agent, e.Manifest.Hash, h, nil})
	}
}

// store takes its time; a crash in between loses the acceptance, not the file.
func (u *uploads) store(c Complete) {
	a := u.agent(c.Agent)
	_, chunked := c.Data.(*handle)
	if !bytes.Equal(bytesOf(c.Data), a.payload) || c.Digest != a.manifest.Hash || c.Data.Close() != nil {
		u.t.Fatalf("%s: the result is not what was sent", a.id)
	}
	life := u.life
	u.after(20*time.Millisecond, func() {
		if u.life != life {
			return
		}
		if chunked {
			u.disks[a.id].wantOnce(u.t)
		}
		u.accepted[a.id] = c.Digest
		u.stored = append(u.stored, a.id)
		u.answer(a, AcceptedBy{wire.Accepted{Update: c.Digest}})
		u.stepReceiver(Stored{a.id})
	})
}

// trouble does one thing that happens to processes and links.
func (u *uploads) trouble() {
	a := u.agents[u.rng.IntN(len(u.agents))]
	switch u.rng.IntN(5) {
	case 0:
		u.logf("coordinator restarts")
		u.life++
		u.receiver, u.alarm = NewReceiver(u.cfg), alarm{}
		if u.rng.IntN(2) == 0 {
			for _, a := range u.agents {
				u.disks[a.id].powerCut(u.rng)
			}
		}
	case 2:
		u.logf("full disk for %s", a.id)
		u.disks[a.id].full = true
		u.after(time.Duration(u.rng.Int64N(int64(time.Minute))), func() { u.disks[a.id].full = false })
	case 1:
		u.logf("%s restarts", a.id)
		if !a.done {
			u.boot(a, time.Second)
		}
	default:
		if !a.up {
			return
		}
		u.logf("%s loses its link", a.id)
		a.up, a.lent = false, nil
		a.session++
		u.stepSender(a, Disconnected{})
		u.after(time.Duration(u.rng.Int64N(int64(2*time.Minute))), func() {
			u.logf("%s has a link", a.id)
			a.up = true
			u.stepSender(a, Connected{})
		})
	}
}

func (u *uploads) allDone() bool {
	return !slices.ContainsFunc(u.agents, func(a *uploader) bool { return !a.done })
}

// TestUploadsCompleteInBadWeather: whatever is lost, doubled, overtaken, cut
// and restarted, every update arrives whole and within the bounds.
func TestUploadsCompleteInBadWeather(t *testing.T) {
	var met ReceiverStats // at the ends, so that the test knows that the weather was bad
	for seed := range uint64(seeds) {
		twice(t, func() []string {
			rng := seeded(seed)
			cfg := tight()
			cfg.MaxUpdate, cfg.MaxBuffered = 12*wire.MaxChunk, (12+rng.IntN(24))*wire.MaxChunk
			cfg.Window = 1 + rng.IntN(16)
			cfg.MaxOutstandingChunks = cfg.Window + rng.IntN(6)
			cfg.MaxOutstandingBytes = (cfg.Window + rng.IntN(6)) * maxChunkMessage
			cfg.Lease, cfg.Leases = time.Duration(3+rng.IntN(13))*time.Second, 8
			var payloads [][]byte
			for i := range 2 + rng.IntN(7) {
				payloads = append(payloads, blobOf(seed<<8+uint64(i), 1+rng.IntN(cfg.MaxUpdate)>>rng.IntN(5)))
			}
			u := newUploads(newWorld(t, seed, randomWeather(rng)), cfg, payloads, 5*time.Second)
			for range rng.IntN(20) {
				u.after(time.Duration(rng.Int64N(int64(90*time.Second))), u.trouble)
			}
			if !u.run(6*time.Hour, u.allDone) {
				t.Fatalf("seed %d: not complete in %v with %+v; the end: %q", seed, u.now.Sub(epoch), u.weather,
					u.log[max(0, len(u.log)-20):])
			}
			s := u.receiver.Stats()
			met.Completed += s.Completed
			met.Expired += s.Expired
			met.Duplicates += s.Duplicates
			met.Wrong += s.Wrong
			met.Unknown += s.Unknown
			met.Resumed += s.Resumed
			met.Unstored += s.Unstored
			return u.log
		})
	}
	if met.Completed == 0 || met.Expired == 0 || met.Duplicates == 0 || met.Wrong == 0 || met.Unknown == 0 ||
		met.Resumed == 0 || met.Unstored == 0 {
		t.Errorf("some of the bad weather never came: %+v", met)
	}
}

// TestManyUploadsAreFair: a hundred agents with 2 MB each, memory for three.
func TestManyUploadsAreFair(t *testing.T) {
	twice(t, func() []string {
		u := manyUploads(t, weather{delay: 50 * time.Millisecond})
		if s := u.receiver.Stats(); s.Expired != 0 {
			t.Fatalf("a lease ended on a good link: %+v", s)
		}
		for place, id := range u.stored {
			if turn := slices.Index(u.offered, id); place < turn-2 || place > turn+4 {
				t.Errorf("%s came as number %d and was done as number %d", id, turn, place)
			}
		}
		return u.log
	})
	manyUploads(t, weather{delay: 50 * time.Millisecond, loss: 0.02, double: 0.02})
}

func manyUploads(t *testing.T, w weather) *uploads {
	t.Helper()
	const agents, size = 100, 2 << 20
	cfg := DefaultReceiverConfig()
	cfg.MaxUpdate, cfg.MaxBuffered = size, 3*size
	u := newUploads(newWorld(t, 1, w), cfg, slices.Repeat([][]byte{blobOf(1, size)}, agents), 10*time.Second)
	if !u.run(6*time.Hour, u.allDone) {
		t.Fatalf("not complete: %+v", u.receiver.Stats())
	}
	if s := u.receiver.Stats(); s.Completed != agents || s.Dropped != 0 {
		t.Fatalf("want %d complete and none dropped: %+v", agents, s)
	}
	return u
}

// R13: on links on which a chunk takes as long as several leases nothing
// is sent twice, and whoever takes its link for a slower one is no slower.
func TestUploadOnASlowLink(t *testing.T) {
	for _, tt := range []struct {
		line, rate Rate
		again      int // chunks that are sent again, at most
	}{
		{1000, 1000, 0},
		{2000, 2000, 0},
		{10_000, 10_000, 0},
		{20_000, 20_000, 0},
		{200_000, 20_000, 0},
		{0, 20_000, 0},
		{10_000, 20_000, 0}, // who takes its link for a faster one
		{5_000, 20_000, 0},
		{20_000, 0, 100}, // what knowing it saves
	} {
		twice(t, func() []string {
			const chunks = 40
			w := newWorld(t, 1, weather{delay: 50 * time.Millisecond})
			u := newUploads(w, DefaultReceiverConfig(), nil, 0)
			u.rate, u.line = tt.rate, tt.line
			u.add(blobOf(1, chunks*wire.MaxChunk), 0)
			if !u.run(6*time.Hour, u.allDone) {
				t.Fatalf("%+v: not complete: %+v", tt, u.receiver.Stats())
			}
			a := u.agents[0]
			if again := a.chunks - chunks; again > tt.again || (again > 0) != (tt.again > 0) {
				t.Errorf("%+v: %d chunks were sent again", tt, again)
			}
			if took, least := u.now.Sub(epoch), tt.line.time(chunks*maxChunkMessage); tt.again == 0 &&
				took > least+least/10+20*time.Second {
				t.Errorf("%+v: took %v, the line alone %v", tt, took, least)
			}
			return u.log
		})
	}
}

// TestUploadsOutliveAgentsThatFallSilent: the memory of an agent that went
// away goes to those that wait.
func TestUploadsOutliveAgentsThatFallSilent(t *testing.T) {
	var payloads [][]byte
	for i := range 6 {
		payloads = append(payloads, blobOf(uint64(i), 3*wire.MaxChunk))
	}
	twice(t, func() []string {
		u := newUploads(newWorld(t, 3, weather{delay: time.Millisecond}), tight(), payloads, 0)
		dead := u.agents[:2]
		u.after(time.Millisecond/2, func() {
			for _, a := range dead {
				a.up = false
				a.session++
				u.stepSender(a, Disconnected{})
			}
		})
		alive := func() bool { return !slices.ContainsFunc(u.agents[2:], func(a *uploader) bool { return !a.done }) }
		if !u.run(5*time.Minute, alive) {
			t.Fatalf("not complete: %+v", u.receiver.Stats())
		}
		if s := u.receiver.Stats(); s.Dropped != 2 {
			t.Fatalf("want the silent two dropped: %+v", s)
		}
		return u.log
	})
}
