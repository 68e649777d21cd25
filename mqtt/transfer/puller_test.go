package transfer

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

func TestPullerTakesParts(t *testing.T) {
	blob := blobOf(1, 3*wire.MaxChunkBytes+5)
	ref, parts := published(t, blob)
	part := func(name string) PartReceived { return PartReceived{name, parts[name], false} }
	wrong := bytes.Clone(parts["1"])
	wrong[100]++
	cfg := DefaultPullerConfig()
	cfg.WindowChunks, cfg.FirstStallTimeout, cfg.MaxStalls = 2, cfg.MaxStallTimeout, 2

	for name, script := range map[string][]step[PullEvent]{
		"straight": {
			{"0s", Tick{}, "", ""},
			{"0s", Start{}, "sub m", "10s"},
			{"1s", Start{}, "", "10s"},
			{"1s", part("m"), "unsub m; sub 0 1", "11s"},
			{"2s", part("1"), "unsub 1; sub 2", "12s"},
			{"3s", part("0"), "unsub 0; sub 3", "13s"},
			{"4s", part("0"), "", "13s"},
			{"4s", part("m"), "", "13s"},
			{"5s", part("3"), "", "15s"},
			{"6s", part("2"), "unsub 3 2; done 184253", ""},
			{"7s", part("2"), "", ""},
		},
		"a wrong chunk is asked for again": {
			{"0s", Start{}, "sub m", "10s"},
			{"0s", PartReceived{"m", parts["0"], false}, "", "10s"},
			{"1s", part("m"), "unsub m; sub 0 1", "11s"},
			{"2s", PartReceived{"1", wrong, false}, "", "11s"},
			{"2s", PartReceived{"1", parts["0"], false}, "", "11s"},
			{"2s", PartReceived{"1", parts["1"][:30], false}, "", "11s"},
			{"3s", part("0"), "unsub 0; sub 2", "13s"},
			{"13s", Tick{}, "unsub 1 2; sub 1 2", "23s"},
			{"14s", part("1"), "unsub 1; sub 3", "24s"},
		},
		"a chunk that was not asked for is taken": {
			{"0s", Start{}, "sub m", "10s"},
			{"0s", part("3"), "", "10s"},
			{"1s", part("m"), "unsub m; sub 0 1", "11s"},
			{"2s", part("2"), "", "12s"},
			{"3s", part("0"), "unsub 0; sub 3", "13s"},
		},
		"a new link does not bring again what has come": {
			{"0s", Start{}, "sub m", "10s"},
			{"1s", part("m"), "unsub m; sub 0 1", "11s"},
			{"2s", part("1"), "unsub 1; sub 2", "12s"},
			{"3s", part("0"), "unsub 0; sub 3", "13s"},
			{"4s", part("2"), "", "14s"},
			{"5s", LinkDown{}, "unsub 2", ""},
			{"6s", LinkUp{}, "", "16s"},
			{"16s", Tick{}, "unsub 3; sub 3", "26s"},
			{"17s", part("3"), "unsub 3; done 184253", ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, openingPuller(NewBlobPuller(cfg, ref, unjittered())), script)
		})
	}
}

func TestPullerWaits(t *testing.T) {
	blob := blobOf(1, 3*wire.MaxChunkBytes+5)
	ref, parts := published(t, blob)
	part := func(name string) PartReceived { return PartReceived{name, parts[name], false} }
	cfg := DefaultPullerConfig()
	cfg.WindowChunks, cfg.FirstStallTimeout, cfg.MaxStalls = 2, cfg.MaxStallTimeout, 2

	for name, script := range map[string][]step[PullEvent]{
		"gone": {
			{"0s", Start{}, "sub m", "10s"},
			{"9s", Tick{}, "", "10s"},
			{"10s", Tick{}, "unsub m; sub m", "20s"},
			{"12s", part("m"), "unsub m; sub 0 1", "22s"},
			{"22s", Tick{}, "unsub 0 1; sub 0 1", "32s"},
			{"32s", Tick{}, "unsub 0 1; failed gone", ""},
			{"33s", part("0"), "", ""},
		},
		"without a link nothing is missed": {
			{"0s", LinkDown{}, "", ""},
			{"0s", Start{}, "sub m", ""},
			{"100s", Tick{}, "", ""},
			{"100s", LinkUp{}, "", "1m50s"},
			{"105s", LinkDown{}, "", ""},
			{"300s", Tick{}, "", ""},
			{"300s", LinkUp{}, "", "5m10s"},
		},
		"cancelled": {
			{"0s", Start{}, "sub m", "10s"},
			{"1s", part("m"), "unsub m; sub 0 1", "11s"},
			{"2s", Cancel{}, "unsub 0 1", ""},
			{"3s", part("0"), "", ""},
			{"3s", Start{}, "", ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, openingPuller(NewBlobPuller(cfg, ref, unjittered())), script)
		})
	}
}

func TestPullerReferences(t *testing.T) {
	blob := blobOf(2, wire.MaxChunkBytes+1)
	ref, parts := published(t, blob)
	small := blob[:100]
	inline := wire.BlobRef{Hash: manifestOf(small).Hash, Length: 100, Inline: small}
	with := func(r wire.BlobRef, change func(*wire.BlobRef)) wire.BlobRef {
		change(&r)
		return r
	}
	cfg := DefaultPullerConfig()
	cfg.MaxBlobBytes = len(blob)
	for name, c := range map[string]struct {
		ref  wire.BlobRef
		want string
	}{
		"inline":          {inline, "done 100"},
		"inline, changed": {with(inline, func(r *wire.BlobRef) { r.Hash[0]++ }), "failed corrupt"},
		"inline, cut":     {with(inline, func(r *wire.BlobRef) { r.Inline = r.Inline[1:] }), "failed corrupt"},
		"absent":          {wire.BlobRef{}, "failed corrupt"},
		"too large":       {with(ref, func(r *wire.BlobRef) { r.Length++ }), "failed too large"},
		"huge":            {with(ref, func(r *wire.BlobRef) { r.Length = math.MaxUint32 }), "failed too large"},
		"largest":         {ref, "sub m 0 1"},
	} {
		if got := describe(NewBlobPuller(cfg, c.ref, unjittered()).Step(epoch, Start{})); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}

	// The manifest matches its announced hash but is invalid.
	for name, c := range map[string]struct {
		change func(*wire.BlobRef)
		want   string
	}{
		"another length": {func(r *wire.BlobRef) { r.Length-- }, "unsub m 0; failed corrupt"},
		"another blob":   {func(r *wire.BlobRef) { r.Hash[31]++ }, "unsub m 0 1; failed corrupt"},
	} {
		p := NewBlobPuller(cfg, with(ref, c.change), unjittered())
		p.Step(epoch, Start{})
		if got := describe(p.Step(epoch, PartReceived{"m", parts["m"], false})); got != c.want {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

// TestPullerStorage checks downloads with a storage that already contains part of the blob, a storage that cannot be
// opened at first, and a storage that fails.
func TestPullerStorage(t *testing.T) {
	blob := blobOf(3, 3*wire.MaxChunkBytes+1)
	ref, parts := published(t, blob)
	part := func(name string) PartReceived { return PartReceived{name, parts[name], false} }
	cfg := DefaultPullerConfig()
	cfg.WindowChunks, cfg.FirstStallTimeout, cfg.MaxStalls = 2, cfg.MaxStallTimeout, 3
	disk := newDisk(manifestOf(blob))
	disk.write(1, wire.ChunkPayload(blob, 1))
	full := errors.New("full")
	opened := func(err error) StorageOpened {
		if err != nil {
			return StorageOpened{BlobDigest: ref.Hash, Err: err}
		}
		return StorageOpened{BlobDigest: ref.Hash, Storage: disk.open()}
	}
	p := NewBlobPuller(cfg, ref, unjittered())
	play(t, p, []step[PullEvent]{
		{"0s", opened(nil), "", ""}, // the puller has not requested the storage yet
		{"0s", Start{}, "sub m", "10s"},
		{"1s", part("m"), "open 184249", ""},
		{"2s", part("0"), "", ""},
		{"2s", Tick{}, "", ""},
		{"3s", opened(full), "unstored", "13s"},
		{"13s", Tick{}, "open 184249", ""},
		{"14s", opened(full), "", "24s"},
		{"24s", Tick{}, "open 184249", ""},
		{"25s", opened(nil), "unsub m; sub 0 2", "35s"},
		{"26s", part("2"), "unsub 2; sub 3", "36s"},
	})
	disk.full = true
	play(t, p, []step[PullEvent]{
		{"27s", part("0"), "unstored", "36s"},
		{"28s", part("3"), "", "36s"},
		{"36s", Tick{}, "unsub 0 3; sub 0 3", "46s"},
		{"46s", Tick{}, "unsub 0 3; sub 0 3", "56s"},
		{"56s", Tick{}, "unsub 0 3; failed unstored", ""},
		{"57s", opened(nil), "", ""},
	})
	if disk.handles != 0 {
		t.Errorf("%d storages were not closed", disk.handles)
	}
	if got, want := p.Stats(), (PullerStats{StoredChunks: 1, ResumedChunks: 1, StorageFailures: 4, IgnoredMessages: 1,
		Stalls: 5}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}

	disk.full = false
	p = NewBlobPuller(cfg, ref, unjittered())
	play(t, p, []step[PullEvent]{
		{"0s", Start{}, "sub m", "10s"},
		{"0s", part("m"), "open 184249", ""},
		{"0s", opened(nil), "unsub m; sub 0 3", "10s"},
		{"1s", Cancel{}, "unsub 0 3", ""},
	})
	if disk.handles != 0 {
		t.Errorf("%d storages were not closed after Cancel", disk.handles)
	}
}

func TestPullerJitterAndStats(t *testing.T) {
	ref, parts := published(t, blobOf(4, 10))
	least, most := time.Hour, time.Duration(0)
	for seed := range uint64(200) {
		p := NewBlobPuller(DefaultPullerConfig(), ref, seeded(seed))
		p.Step(epoch, Start{})
		at, _ := p.Deadline()
		least, most = min(least, at.Sub(epoch)), max(most, at.Sub(epoch))
	}
	if least < 750*time.Millisecond || least > 800*time.Millisecond || most > 1250*time.Millisecond ||
		most < 1200*time.Millisecond {
		t.Errorf("timeouts are from %v to %v, want about 0.75s to 1.25s", least, most)
	}

	raw := NewBlobPuller(DefaultPullerConfig(), ref, unjittered())
	p := openingPuller(raw)
	for _, ev := range []PullEvent{Start{}, PartReceived{"m", nil, false}, PartReceived{"m", parts["m"], false},
		PartReceived{"1", parts["0"], false}, PartReceived{"0", parts["0"], false}} {
		p.Step(epoch, ev)
	}
	if got, want := raw.Stats(), (PullerStats{StoredChunks: 1, CorruptMessages: 2}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestPullerConfigValidate(t *testing.T) {
	if err := DefaultPullerConfig().Validate(); err != nil {
		t.Error(err)
	}
	err := PullerConfig{MaxBlobBytes: wire.MaxBlobBytes + 1}.Validate()
	for _, field := range []string{"MaxBlobBytes", "WindowChunks", "FirstStallTimeout", "MaxStallTimeout",
		"MaxStalls is"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not in %v", field, err)
		}
	}
}

// TestPullerMovesItsWindowByHalves checks that the window of subscribed chunks moves by half its size, because each
// change of subscriptions costs two packets. The subscription to the manifest ends with the subscriptions to the first
// chunks.
func TestPullerMovesItsWindowByHalves(t *testing.T) {
	ref, parts := published(t, blobOf(4, 8*wire.MaxChunkBytes))
	cfg := DefaultPullerConfig()
	cfg.WindowChunks, cfg.FirstStallTimeout = 4, cfg.MaxStallTimeout
	part := func(name string) PartReceived { return PartReceived{name, parts[name], false} }
	play(t, openingPuller(NewBlobPuller(cfg, ref, unjittered())), []step[PullEvent]{
		{"0s", Start{}, "sub m", "10s"},
		{"0s", part("m"), "sub 0 1 2", "10s"},
		{"0s", part("0"), "unsub m 0; sub 3 4", "10s"},
		{"0s", part("1"), "", "10s"},
		{"0s", part("2"), "unsub 1 2; sub 5 6", "10s"},
		{"0s", part("4"), "", "10s"},
		{"0s", Cancel{}, "unsub 4 3 5 6", ""},
	})
}

// TestPullerAsksForAllAtOnce checks that the manifest and chunks of a short blob are requested together and may arrive
// in any order. Missing parts are requested again after 1 s, then after 2 s.
func TestPullerAsksForAllAtOnce(t *testing.T) {
	ref, parts := published(t, blobOf(4, 6*wire.MaxChunkBytes+1))
	wrong := bytes.Clone(parts["1"])
	wrong[100]++
	part := func(name string) PartReceived { return PartReceived{name, parts[name], false} }
	for name, script := range map[string][]step[PullEvent]{
		"in order": {
			{"0s", Start{}, "sub m 0 1 2 3 4 5 6", "1s"},
			{"100ms", part("m"), "", "1.1s"},
			{"200ms", part("0"), "", "1.2s"},
			{"200ms", part("1"), "", "1.2s"},
			{"200ms", part("2"), "", "1.2s"},
			{"200ms", part("3"), "", "1.2s"},
			{"200ms", part("4"), "", "1.2s"},
			{"200ms", part("5"), "", "1.2s"},
			{"200ms", part("6"), "unsub m 0 1 2 3 4 5 6; done 368497", ""},
		},
		"the manifest last": {
			{"0s", Start{}, "sub m 0 1 2 3 4 5 6", "1s"},
			{"100ms", part("6"), "", "1.1s"},
			{"200ms", part("0"), "", "1.2s"},
			{"200ms", PartReceived{"1", wrong, false}, "", "1.2s"},
			{"200ms", PartReceived{"7", parts["6"], false}, "", "1.2s"},
			{"1200ms", Tick{}, "unsub m; sub m", "3.2s"},
			{"1300ms", part("2"), "", "2.3s"},
			{"2300ms", Tick{}, "unsub m; sub m", "4.3s"},
			{"4300ms", Tick{}, "unsub m; sub m; lacking true []", "8.3s"},
			{"5s", part("m"), "lacking false [3 4 5]", "6s"},
			{"6s", Tick{}, "unsub m 0 2 6; unsub 1 3 4 5; sub 1 3 4 5; lacking false [1 3 4 5]", "8s"},
			{"7s", part("1"), "", "8s"},
			{"7s", part("3"), "", "8s"},
			{"7s", part("4"), "", "8s"},
			{"7s", part("5"), "unsub 1 3 4 5; done 368497", ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, openingPuller(NewBlobPuller(DefaultPullerConfig(), ref, unjittered())), script)
		})
	}
}

// TestPullerOnASlowLink checks that a chunk which may still be in transit on a slow link is not requested again, but a
// manifest is.
func TestPullerOnASlowLink(t *testing.T) {
	ref, parts := published(t, blobOf(4, wire.MaxChunkBytes))
	play(t, openingPuller(NewBlobPuller(DefaultPullerConfig().ForLinkRate(20_000), ref, unjittered())),
		[]step[PullEvent]{
			{"0s", Start{}, "sub m 0", "1.0016s"},
			{"1100ms", Tick{}, "unsub m; sub m", "3.1016s"},
			{"2s", PartReceived{"m", parts["m"], false}, "", "11.8304s"},
			{"11830400us", Tick{}, "unsub m; unsub 0; sub 0", "21.6608s"},
			{"15s", PartReceived{"0", parts["0"], false}, "unsub 0; done 61416", ""},
		})
}

// TestPullerResumesAWindow checks that a resumed download does not wait for chunks that are already stored.
func TestPullerResumesAWindow(t *testing.T) {
	blob := blobOf(3, 2*wire.MaxChunkBytes+1)
	ref, parts := published(t, blob)
	disk := newDisk(manifestOf(blob))
	disk.write(1, wire.ChunkPayload(blob, 1))
	disk.write(2, wire.ChunkPayload(blob, 2))
	p := NewBlobPuller(DefaultPullerConfig(), ref, unjittered())
	play(t, p, []step[PullEvent]{
		{"0s", Start{}, "sub m 0 1 2", "1s"},
		{"0s", PartReceived{"0", parts["0"], false}, "", "1s"},
		{"0s", PartReceived{"m", parts["m"], false}, "open 122833", ""},
		{"0s", StorageOpened{BlobDigest: ref.Hash, Storage: disk.open()}, "unsub m 1 2 0; done 122833", ""},
	})
}

// TestPullerLacks checks a download from a broker that returns no parts. After the second unsuccessful request the
// parts are reported as missing. Later parts are reported immediately, until the broker returns a part.
func TestPullerLacks(t *testing.T) {
	ref, parts := published(t, blobOf(4, 4*wire.MaxChunkBytes))
	cfg := DefaultPullerConfig()
	cfg.WindowChunks = 2
	part := func(name string, retained bool) PartReceived { return PartReceived{name, parts[name], retained} }
	p := NewBlobPuller(cfg, ref, unjittered())
	play(t, openingPuller(p), []step[PullEvent]{
		{"0s", Start{}, "sub m", "1s"},
		{"1s", Tick{}, "unsub m; sub m", "3s"},
		{"3s", Tick{}, "unsub m; sub m; lacking true []", "7s"},
		{"4s", part("m", false), "unsub m; sub 0 1; lacking false [0 1]", "5s"},
		{"5s", Tick{}, "unsub 0 1; sub 0 1; lacking false [0 1]", "7s"},
		{"6s", part("0", false), "unsub 0; sub 2; lacking false [2]", "7s"},
		{"6s", part("1", true), "unsub 1; sub 3", "7s"},
		{"7s", Tick{}, "unsub 2 3; sub 2 3", "9s"},
		{"8s", part("2", false), "", "9s"},
		{"8s", part("3", false), "unsub 2 3; done 245664", ""},
	})
	cfg.BrokerLacksParts = true
	p = NewBlobPuller(cfg, ref, unjittered())
	play(t, openingPuller(p), []step[PullEvent]{{"0s", Start{}, "sub m; lacking true []", "1s"}})
	if !p.BrokerLacksParts() {
		t.Error("no part was returned, and none is missed")
	}
}
