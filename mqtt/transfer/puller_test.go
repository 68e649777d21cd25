package transfer

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

func TestPullerTakesParts(t *testing.T) {
	blob := blobOf(1, 3*wire.MaxChunk+5)
	ref, parts := published(t, blob)
	part := func(name string) Part { return Part{name, parts[name]} }
	wrong := bytes.Clone(parts["1"])
	wrong[100]++
	cfg := DefaultPullerConfig()
	cfg.Window, cfg.Attempts = 2, 2

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
			{"5s", part("3"), "unsub 3", "15s"},
			{"6s", part("2"), "unsub 2; done 184253", ""},
			{"7s", part("2"), "", ""},
		},
		"a wrong chunk is asked for again": {
			{"0s", Start{}, "sub m", "10s"},
			{"0s", Part{"m", parts["0"]}, "", "10s"},
			{"1s", part("m"), "unsub m; sub 0 1", "11s"},
			{"2s", Part{"1", wrong}, "", "11s"},
			{"2s", Part{"1", parts["0"]}, "", "11s"},
			{"2s", Part{"1", parts["1"][:30]}, "", "11s"},
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
	} {
		t.Run(name, func(t *testing.T) {
			play(t, NewPuller(cfg, ref, unjittered()), script)
		})
	}
}

func TestPullerWaits(t *testing.T) {
	blob := blobOf(1, 3*wire.MaxChunk+5)
	ref, parts := published(t, blob)
	part := func(name string) Part { return Part{name, parts[name]} }
	cfg := DefaultPullerConfig()
	cfg.Window, cfg.Attempts = 2, 2

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
			{"0s", Disconnected{}, "", ""},
			{"0s", Start{}, "sub m", ""},
			{"100s", Tick{}, "", ""},
			{"100s", Connected{}, "", "1m50s"},
			{"105s", Disconnected{}, "", ""},
			{"300s", Tick{}, "", ""},
			{"300s", Connected{}, "", "5m10s"},
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
			play(t, NewPuller(cfg, ref, unjittered()), script)
		})
	}
}

func TestPullerReferences(t *testing.T) {
	blob := blobOf(2, wire.MaxChunk+1)
	ref, parts := published(t, blob)
	small := blob[:100]
	inline := wire.BlobRef{Hash: manifestOf(small).Hash, Length: 100, Inline: small}
	with := func(r wire.BlobRef, change func(*wire.BlobRef)) wire.BlobRef {
		change(&r)
		return r
	}
	cfg := DefaultPullerConfig()
	cfg.MaxBytes = len(blob)
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
		"largest":         {ref, "sub m"},
	} {
		if got := describe(NewPuller(cfg, c.ref, unjittered()).Step(epoch, Start{})); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}

	// A manifest that is the announced one, and lies.
	for name, change := range map[string]func(*wire.BlobRef){
		"another length": func(r *wire.BlobRef) { r.Length-- },
		"another blob":   func(r *wire.BlobRef) { r.Hash[31]++ },
	} {
		p := NewPuller(cfg, with(ref, change), unjittered())
		p.Step(epoch, Start{})
		if got := describe(p.Step(epoch, Part{"m", parts["m"]})); got != "unsub m; failed corrupt" {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

func TestPullerRefusesAWholeThatItsChunksDoNotMake(t *testing.T) {
	blob := blobOf(3, wire.MaxChunk+1)
	m := manifestOf(blob)
	m.Hash[31]++ // the first bytes, which chunks carry, stay
	message := m.Append(nil)
	ref := wire.BlobRef{Hash: m.Hash, Length: m.Length, Manifest: digestOf(message)}
	p := NewPuller(DefaultPullerConfig(), ref, unjittered())
	play(t, p, []step[PullEvent]{
		{"0s", Start{}, "sub m", "10s"},
		{"0s", Part{"m", message}, "unsub m; sub 0 1", "10s"},
		{"0s", Part{"0", chunkMessage(m.Hash, blob, 0)}, "unsub 0", "10s"},
		{"0s", Part{"1", chunkMessage(m.Hash, blob, 1)}, "unsub 1; failed corrupt", ""},
	})
}

func TestPullerJitterAndStats(t *testing.T) {
	ref, parts := published(t, blobOf(4, 10))
	least, most := time.Hour, time.Duration(0)
	for seed := range uint64(200) {
		p := NewPuller(DefaultPullerConfig(), ref, seeded(seed))
		p.Step(epoch, Start{})
		at, _ := p.Deadline()
		least, most = min(least, at.Sub(epoch)), max(most, at.Sub(epoch))
	}
	if least < 7500*time.Millisecond || least > 8*time.Second || most > 12500*time.Millisecond || most < 12*time.Second {
		t.Errorf("timeouts are from %v to %v, want about 7.5s to 12.5s", least, most)
	}

	p := NewPuller(DefaultPullerConfig(), ref, unjittered())
	for _, ev := range []PullEvent{Start{}, Part{"0", parts["0"]}, Part{"m", nil}, Part{"m", parts["m"]}, Part{"1", parts["0"]}, Part{"0", parts["0"]}} {
		p.Step(epoch, ev)
	}
	if got, want := p.Stats(), (PullerStats{Chunks: 1, Wrong: 2, Ignored: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestPullerConfigValidate(t *testing.T) {
	if err := DefaultPullerConfig().Validate(); err != nil {
		t.Error(err)
	}
	err := PullerConfig{MaxBytes: wire.MaxBlob + 1}.Validate()
	for _, field := range []string{"MaxBytes", "Window", "Timeout", "Attempts"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not in %v", field, err)
		}
	}
}
