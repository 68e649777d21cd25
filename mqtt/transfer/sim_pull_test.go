package transfer

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// download is one agent that pulls a blob from a broker.
type download struct {
	*world
	blob     []byte
	ref      wire.BlobRef
	retained map[string][]byte
	cfg      PullerConfig
	line     Rate          // of the downlink
	free     time.Time     // when it has carried everything
	ahead    time.Duration // most that was on it
	parts    int           // sent
	puller   *Puller
	disk     *disk // outlives the process
	handle   *handle
	alarm    alarm
	up       bool
	subs     subscriptions // the session's table
	session  int
	again    bool // a failed pull begins again, as after a new hello
	done     bool
	err      error
}

// subscriptions is a session's table, and checks what a puller does to it.
type subscriptions map[string]bool

func (s subscriptions) apply(t testing.TB, effects []PullEffect, window int) {
	t.Helper()
	for _, e := range effects {
		switch e := e.(type) {
		case Subscribe:
			for _, name := range e.Parts {
				if s[name] {
					t.Fatalf("part %s is subscribed to twice", name)
				}
				s[name] = true
			}
		case Unsubscribe:
			for _, name := range e.Parts {
				if !s[name] {
					t.Fatalf("part %s is not subscribed to", name)
				}
				delete(s, name)
			}
		case Done, Failed:
			if len(s) > 0 {
				t.Fatalf("ended with subscriptions %v", s)
			}
		}
		if len(s) > window {
			t.Fatalf("%d subscriptions, the window is %d", len(s), window)
		}
	}
}

func newDownload(w *world, blob []byte, cfg PullerConfig) *download {
	d := &download{world: w, blob: blob, cfg: cfg, up: true}
	d.ref, d.retained = published(w.t, blob)
	d.disk = newDisk(manifestOf(blob))
	d.begin()
	return d
}

// begin starts a puller on a clean session.
func (d *download) begin() {
	d.session++
	d.subs, d.alarm, d.handle = subscriptions{}, alarm{}, nil
	d.puller = NewPuller(d.cfg, d.ref, seeded(d.rng.Uint64()))
	if !d.up {
		d.step(Disconnected{})
	}
	d.step(Start{})
}

func (d *download) step(ev PullEvent) {
	p := d.puller
	effects := p.Step(d.now, ev)
	if len(effects) > 0 {
		d.logf("%s", describe(effects))
	}
	d.subs.apply(d.t, effects, d.cfg.Window)
	for _, e := range effects {
		switch e := e.(type) {
		case Subscribe:
			for k := range d.disk.m.Chunks {
				if d.handle != nil && d.handle.have[k] && slices.Contains(e.Parts, ChunkPart(k)) {
					d.t.Fatalf("chunk %d is on disk and is asked for", k)
				}
			}
			d.redeliver(e.Parts)
		case Open:
			d.after(time.Duration(d.rng.Int64N(int64(time.Second))), func() { d.open(p) })
		case Done:
			if h := e.Data.(*handle); !bytes.Equal(h.whole(), d.blob) || h.Close() != nil {
				d.t.Fatal("the result is not what was published")
			}
			d.disk.wantOnce(d.t)
			d.done = true
		case Failed:
			d.fail(e.Err)
		}
	}
	at, ok := p.Deadline()
	d.alarm.arm(d.world, at, ok, func() {
		if d.puller == p {
			d.step(Tick{})
		}
	})
}

// open is the host's answer, which may come after the process that asked.
func (d *download) open(p *Puller) {
	h := d.disk.open()
	if d.puller != p {
		_ = h.Close()
		return
	}
	d.handle = h
	d.step(Opened{Blob: d.ref.Hash, Data: h})
}

func (d *download) fail(err error) {
	if !errors.Is(err, ErrGone) && !errors.Is(err, ErrUnstored) || !d.again {
		d.done, d.err = true, err
		return
	}
	d.after(time.Second, d.begin)
}

// redeliver is the broker's answer to a SUBSCRIBE: the retained messages.
func (d *download) redeliver(names []string) {
	if !d.up {
		return
	}
	session := d.session
	for _, name := range names {
		message, ok := d.retained[name]
		if !ok {
			continue
		}
		message = d.spoil(message)
		d.parts++
		if d.free.Before(d.now) {
			d.free = d.now
		}
		d.free = d.free.Add(d.line.time(len(message)))
		d.ahead = max(d.ahead, d.free.Sub(d.now))
		d.at(d.free, func() {
			d.carry(func() {
				if d.up && d.session == session {
					d.step(Part{name, message})
				}
			})
		})
	}
}

func (d *download) trouble() {
	switch {
	case d.done:
	case d.rng.IntN(3) == 0:
		d.logf("restart")
		if d.rng.IntN(2) == 0 {
			d.disk.powerCut(d.rng)
		}
		d.begin()
	case d.rng.IntN(4) == 0:
		d.logf("full disk")
		d.disk.full = true
		d.after(time.Duration(d.rng.Int64N(int64(40*time.Second))), func() { d.disk.full = false })
	case d.up:
		d.logf("link lost")
		d.up = false
		d.session++
		d.step(Disconnected{})
		d.after(time.Duration(d.rng.Int64N(int64(time.Minute))), func() {
			d.logf("link back")
			d.up = true
			names := make([]string, 0, len(d.subs))
			for name := range d.subs {
				names = append(names, name)
			}
			slices.Sort(names)
			d.redeliver(names)
			d.step(Connected{})
		})
	}
}

// TestDownloadsCompleteInBadWeather is the twin of the uploads' test.
func TestDownloadsCompleteInBadWeather(t *testing.T) {
	for seed := range uint64(seeds) {
		twice(t, func() []string {
			rng := seeded(seed)
			cfg := DefaultPullerConfig()
			cfg.Window = 1 + rng.IntN(8)
			d := newDownload(newWorld(t, seed, randomWeather(rng)), blobOf(seed, 1+rng.IntN(12*wire.MaxChunk)), cfg)
			d.again = true
			for range rng.IntN(8) {
				d.after(time.Duration(rng.Int64N(int64(2*time.Minute))), d.trouble)
			}
			if !d.run(2*time.Hour, func() bool { return d.done }) || d.err != nil {
				t.Fatalf("seed %d: not complete in %v with %+v: %v", seed, d.now.Sub(epoch), d.weather, d.err)
			}
			return d.log
		})
	}
}

// R13: a window comes in less than the time for the answer to a ping, which is
// four chunks' or 30 s, and nothing is asked for twice.
func TestDownloadOnASlowLink(t *testing.T) {
	const chunks = 40
	for _, rate := range []Rate{0, 1_000_000, 20_000, 10_000, 2000, 1000} {
		twice(t, func() []string {
			w := newWorld(t, 1, weather{delay: 50 * time.Millisecond})
			d := newDownload(w, blobOf(1, chunks*wire.MaxChunk), DefaultPullerConfig().For(rate))
			d.line = rate
			if !d.run(24*time.Hour, func() bool { return d.done }) || d.err != nil {
				t.Fatalf("%d B/s: not complete in %v: %v", rate, d.now.Sub(epoch), d.err)
			}
			if most := max(30*time.Second, 4*rate.time(wire.MaxMessage)); d.ahead > most {
				t.Errorf("%d B/s: %v of chunks on the line, want at most %v", rate, d.ahead, most)
			}
			if s := d.puller.Stats(); d.parts != chunks+1 || s.Stalls != 0 {
				t.Errorf("%d B/s: %d parts were sent, %d stalls", rate, d.parts, s.Stalls)
			}
			if took, least := d.now.Sub(epoch),
				rate.time(chunks*maxChunkMessage); took > least+least/10+20*time.Second {
				t.Errorf("%d B/s: took %v, the line alone %v", rate, took, least)
			}
			return d.log
		})
	}
}

// TestDownloadOfADeletedBlobFails: deleted before it begins, or half way.
func TestDownloadOfADeletedBlobFails(t *testing.T) {
	for _, from := range []time.Duration{0, 120 * time.Millisecond} {
		d := newDownload(newWorld(t, 1, weather{delay: 100 * time.Millisecond}), blobOf(1, 40*wire.MaxChunk),
			DefaultPullerConfig())
		if from == 0 {
			clear(d.retained)
			d.begin()
		}
		d.after(from, func() { clear(d.retained) })
		if !d.run(time.Hour, func() bool { return d.done }) || !errors.Is(d.err, ErrGone) {
			t.Errorf("deleted after %v: done %v, %v", from, d.done, d.err)
		}
		if took := d.now.Sub(epoch); took < 45*time.Second || took > 80*time.Second {
			t.Errorf("deleted after %v: given up after %v, want 6 timeouts of about 10s", from, took)
		}
	}
}
