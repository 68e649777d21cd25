package transfer

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// tight returns a configuration with low limits: windows of two chunks, memory for one blob of three chunks and one
// blob of two chunks, and at most three outstanding chunks.
func tight() ReceiverConfig {
	return ReceiverConfig{
		MaxUpdateBytes: 3 * wire.MaxChunkBytes, MaxBufferedBytes: 5 * wire.MaxChunkBytes,
		MaxOutstandingChunks: 3, MaxOutstandingBytes: 3 * maxChunkMessageBytes,
		WindowChunks: 2, LeaseDuration: 10 * time.Second, MaxEmptyLeases: 2,
	}
}

// The blobs of the test scripts: three chunks, two chunks, and a small one.
var (
	three, two, small = blobOf(10, 3*wire.MaxChunkBytes), blobOf(11, wire.MaxChunkBytes+1), blobOf(12, 100)
	m3, m2, ms        = manifestOf(three), manifestOf(two), manifestOf(small)
)

func offer(a wire.AgentID, m wire.Manifest) UpdateOffer {
	return UpdateOffer{Agent: a, AgentBootEpoch: 1, Manifest: m}
}

func reboot(a wire.AgentID, boot wire.Epoch, m wire.Manifest) UpdateOffer {
	return UpdateOffer{Agent: a, AgentBootEpoch: boot, Manifest: m}
}

func inline(a wire.AgentID, m wire.Manifest, p []byte) UpdateOffer {
	return UpdateOffer{Agent: a, AgentBootEpoch: 1, Manifest: m, InlinePayload: p}
}

func chunkOf(a wire.AgentID, m wire.Manifest, blob []byte, k int) ChunkReceived {
	return ChunkReceived{a, UploadID(m.Hash), ChunkMessage(m.Hash, blob, k, nil)}
}

func c3(a wire.AgentID, k int) ChunkReceived { return chunkOf(a, m3, three, k) }
func c2(a wire.AgentID, k int) ChunkReceived { return chunkOf(a, m2, two, k) }

func playReceiver(t *testing.T, scripts map[string][]step[ReceiveEvent]) {
	t.Helper()
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) {
			r := NewUpdateReceiver(tight())
			play(t, openingReceiver(r), script)
			checkReceiver(t, r)
		})
	}
}

func TestReceiverTakesUploads(t *testing.T) {
	playReceiver(t, map[string][]step[ReceiveEvent]{
		"straight": {
			{"0s", offer("a", m3), "grant a 0-1 for 10000ms", "10s"},
			{"1s", c3("a", 1), "", "11s"}, // the chunk extends the lease
			{"2s", c3("a", 1), "", "11s"},
			{"2s", c3("a", 0), "grant a 2-2 for 10000ms", "12s"},
			{"3s", c3("a", 2), "complete a 184248", ""},
			{"4s", offer("a", m3), "", ""},
			{"4s", c3("a", 2), "", ""},
			{"4s", offer("a", m2), "", ""}, // the offer is ignored while the previous update is being stored
			{"4s", UpdateReleased{"a"}, "", ""},
			{"4s", offer("a", m3), "", ""},
			{"5s", offer("a", m2), "grant a 0-1 for 10000ms", "15s"},
			{"5s", offer("a", m3), "", "15s"}, // a late repeat of an old offer does not end the newer transfer
			{"5s", DropAgent{"a"}, "", ""},
			{"5s", offer("a", m3), "grant a 0-1 for 10000ms", "15s"},
		},
		"inline": {
			{"0s", inline("a", ms, small), "complete a 100", ""},
			{"0s", inline("a", ms, small), "", ""},
			{"0s", inline("b", ms, two[:100]), "refuse b bad_hash", ""},
			{"0s", inline("b", ms, small[:99]), "refuse b bad_hash", ""},
			{"0s", inline("a", ms, two[:100]), "", ""},
			{"0s", DropAgent{"a"}, "", ""},
			{"0s", inline("a", ms, small), "", ""}, // the offer is ignored because the update is still being stored
			{"0s", UpdateReleased{"a"}, "", ""},
			{"0s", inline("a", ms, small), "complete a 100", ""},
		},
		"another digest replaces": {
			{"0s", offer("a", m3), "grant a 0-1 for 10000ms", "10s"},
			{"1s", c3("a", 0), "", "11s"},
			{"2s", offer("a", m2), "grant a 0-1 for 10000ms", "12s"},
			{"3s", c3("a", 1), "", "12s"},
			{"3s", c2("a", 1), "", "13s"},
			{"3s", inline("a", ms, small), "complete a 100", ""},
		},
		"chunks of nobody": {
			{"0s", c3("a", 0), "", ""},
			{"0s", DropAgent{"a"}, "", ""},
			{"0s", Tick{}, "", ""},
		},
	})
}

// TestReceiverChunks checks that chunks are accepted only for one manifest and only up to its end.
func TestReceiverChunks(t *testing.T) {
	other := m3
	other.ChunkDigests = slices.Clone(m3.ChunkDigests)
	other.ChunkDigests[0][0]++
	beyond := ChunkReceived{"a", UploadID(m3.Hash), wire.AppendChunkMessage(nil, m3.Hash, len(m3.ChunkDigests),
		three[:wire.MaxChunkBytes])}
	playReceiver(t, map[string][]step[ReceiveEvent]{
		"the same hash and other chunks begin anew": {
			{"0s", offer("a", m3), "grant a 0-1 for 10000ms", "10s"},
			{"1s", c3("a", 1), "", "11s"},
			{"2s", offer("a", other), "grant a 0-1 for 10000ms", "12s"},
			{"3s", c3("a", 0), "", "12s"}, // the chunk is not credited but is accepted
			{"4s", c3("a", 1), "", "14s"},
		},
		"a chunk beyond the end": {
			{"0s", offer("a", m3), "grant a 0-1 for 10000ms", "10s"},
			{"1s", beyond, "", "10s"},
			{"2s", c3("a", 0), "", "12s"},
		},
	})
	r := NewUpdateReceiver(tight())
	h := openingReceiver(r)
	h.Step(epoch, offer("a", m3))
	if h.Step(epoch, beyond); r.Stats().CorruptChunks != 1 {
		t.Errorf("%d wrong chunks, want the one beyond the end", r.Stats().CorruptChunks)
	}
}

func TestReceiverRefuses(t *testing.T) {
	lying, long, odd := m2, m3, m3
	lying.Hash[31]++
	long.BlobLength = 1<<32 - 1
	odd.ChunkDigests = odd.ChunkDigests[:2]
	playReceiver(t, map[string][]step[ReceiveEvent]{
		"refused": {
			{"0s", offer("a", long), "refuse a too_large", ""},
			{"0s", offer("a", odd), "refuse a malformed", ""},
			{"0s", offer("a", wire.Manifest{}), "refuse a malformed", ""},
			{"0s", offer("a", lying), "grant a 0-1 for 10000ms", "10s"},
			{"0s", chunkOf("a", lying, two, 0), "", "10s"},
			{"0s", chunkOf("a", lying, two, 1), "complete a 61417", ""},
		},
	})
}

func TestReceiverLends(t *testing.T) {
	wrong := c3("a", 0)
	wrong.Payload[50]++
	playReceiver(t, map[string][]step[ReceiveEvent]{
		"missing and wrong chunks are lent again": {
			{"0s", offer("a", m3), "grant a 0-1 for 10000ms", "10s"},
			{"1s", c3("a", 1), "", "11s"},
			{"2s", wrong, "", "11s"},
			{"10s", Tick{}, "", "11s"},
			{"11s", Tick{}, "grant a 0-0 2-2 for 10000ms", "21s"},
			{"21s", Tick{}, "grant a 0-0 2-2 for 10000ms", "31s"},
			{"22s", c3("a", 2), "", "32s"},
			{"32s", Tick{}, "grant a 0-0 for 10000ms", "42s"},
		},
		"dropped after empty leases, late chunks unknown then": {
			{"0s", offer("a", m3), "grant a 0-1 for 10000ms", "10s"},
			{"10s", Tick{}, "grant a 0-1 for 10000ms", "20s"},
			{"20s", Tick{}, "", ""},
			{"21s", c3("a", 0), "", ""},
			{"22s", offer("a", m3), "grant a 0-1 for 10000ms", "32s"},
		},
		"a repeated offer gets the credit again, a new start a new one": {
			{"0s", offer("a", m3), "grant a 0-1 for 10000ms", "10s"},
			{"1s", c3("a", 0), "", "11s"},
			{"4s", offer("a", m3), "grant a 1-1 for 7000ms", "11s"},
			{"5s", reboot("a", 2, m3), "grant a 1-2 for 10000ms", "15s"},
			{"6s", offer("a", m3), "", "15s"},
			{"15s", reboot("a", 2, m3), "", "15s"},
		},
		"room is first come, first served; outstanding chunks are bounded": {
			{"0s", offer("a", m3), "grant a 0-1 for 10000ms", "10s"},
			{"1s", offer("b", m3), "", "10s"}, // the transfer waits for space
			{"1s", offer("c", m2), "", "10s"}, // the transfer would fit, but must wait for b
			{"1s", offer("b", m3), "", "10s"},
			{"1s", c2("c", 0), "", "10s"},
			{"2s", c3("a", 0), "", "12s"},
			{"2s", c3("a", 1), "grant a 2-2 for 10000ms", "12s"},
			{"3s", c3("a", 2), "complete a 184248", ""},
			{"3s", inline("d", ms, small), "complete d 100", ""},
			{"3s", DropAgent{"a"}, "", ""}, // the space stays reserved, because the host has not released the update
			{"3s", UpdateReleased{"a"}, "grant b 0-1 for 10000ms", "13s"},
			{"4s", c3("b", 1), "grant c 0-1 for 10000ms", "14s"}, // agent c had space but no credit until now
			{"5s", DropAgent{"b"}, "", "14s"},
		},
	})
}

// TestReceiverStorage checks uploads with a storage that contains part or all of the update, that cannot be opened,
// that opens too late, or that fails.
func TestReceiverStorage(t *testing.T) {
	disk := newDisk(m3)
	disk.write(1, wire.ChunkPayload(three, 1))
	full := errors.New("full")
	opened := func(a wire.AgentID) StorageOpened { return StorageOpened{a, m3.Hash, disk.open(), nil} }
	r := NewUpdateReceiver(tight())
	play(t, r, []step[ReceiveEvent]{
		{"0s", opened("a"), "", ""}, // the storage was not requested
		{"0s", offer("a", m3), "open 184248 a", ""},
		{"0s", offer("a", m3), "", ""},
		{"0s", c3("a", 0), "", ""}, // the chunk is ignored because the storage is not open yet
		{"1s", StorageOpened{"a", m3.Hash, nil, full}, "unstored a", ""},
		{"2s", offer("a", m3), "open 184248 a", ""},
		{"2s", StorageOpened{"a", m2.Hash, disk.open(), nil}, "", ""},
		{"2s", opened("a"), "grant a 0-0 2-2 for 10000ms", "12s"},
		{"2s", opened("a"), "", "12s"},
		{"3s", c3("a", 0), "", "13s"},
	})
	disk.full = true
	play(t, r, []step[ReceiveEvent]{
		{"4s", c3("a", 2), "unstored a", "13s"},
		{"5s", c3("a", 2), "", "13s"},
		{"13s", Tick{}, "grant a 2-2 for 10000ms", "23s"},
	})
	checkReceiver(t, r)
	disk.full = false
	play(t, r, []step[ReceiveEvent]{
		{"13s", DropAgent{"a"}, "", ""},
		{"14s", offer("a", m3), "open 184248 a", ""},
		{"14s", DropAgent{"a"}, "", ""},
		{"14s", opened("a"), "", ""}, // the storage opens too late
		{"15s", offer("a", m3), "open 184248 a", ""},
		{"15s", opened("a"), "grant a 2-2 for 10000ms", "25s"},
	})
	if effects := r.Step(epoch, c3("a", 2)); len(effects) != 1 ||
		!bytes.Equal(effects[0].(UpdateComplete).Storage.(*handle).whole(), three) {
		t.Fatalf("%d effects", len(effects))
	}
	r.Step(epoch, UpdateReleased{"a"})
	r.Step(epoch, DropAgent{"a"})
	r.Step(epoch, offer("a", m3))
	if effects := r.Step(epoch, opened("a")); len(effects) != 1 ||
		!bytes.Equal(effects[0].(UpdateComplete).Storage.(*handle).whole(), three) {
		t.Errorf("a whole storage is not complete: %d effects", len(effects))
	}
	if disk.handles != 2 { // two storages belong to the host, all others must be closed
		t.Errorf("%d storages are open", disk.handles)
	}
	if s := r.Stats(); s.ResumedChunks != 1+2+3 || s.StorageFailures != 3 || s.StoringUpdates != 1 {
		t.Errorf("%+v", s)
	}
}

// TestReceiverLeases checks many leases at once. The deadline is the end of the lease that expires first. Leases that
// end together are renewed in order of agent ids. The credited bytes are limited as well as the chunks. An agent that
// restarts while it waits keeps its position in the queue.
func TestReceiverLeases(t *testing.T) {
	cfg := tight()
	cfg.MaxBufferedBytes, cfg.MaxOutstandingChunks = 100*wire.MaxChunkBytes, 100
	cfg.MaxOutstandingBytes = 9 * maxChunkMessageBytes
	cfg.MaxEmptyLeases = 1
	r := openingReceiver(NewUpdateReceiver(cfg))
	for i, a := range []wire.AgentID{"e", "d", "c", "b", "a"} {
		if got := describe(r.Step(epoch, offer(a, m2))); got != fmt.Sprintf("grant %s 0-1 for 10000ms", a) {
			t.Fatalf("%s: %q", a, got)
		}
		r.Step(epoch.Add(time.Duration(5-i)*time.Second), c2(a, 1))
		if at, _ := r.Deadline(); at.Sub(epoch) != time.Duration(15-i)*time.Second {
			t.Errorf("%s: deadline %v", a, at.Sub(epoch))
		}
	}
	raw := r.machine.(*UpdateReceiver)
	play(t, r, []step[ReceiveEvent]{
		{"6s", offer("f", m3), "grant f 0-1 for 10000ms", "11s"},
		{"6s", offer("g", m3), "grant g 0-1 for 10000ms", "11s"},
		{"6s", offer("h", m3), "", "11s"}, // no buffer space is free for agent h
		{"6s", reboot("h", 2, m3), "", "11s"},
		{"7s", c3("f", 0), "", "11s"},
		{"7s", c3("f", 1), "grant h 0-1 for 10000ms", "11s"},
		{"7s", offer("f", m3), "", "11s"}, // agent f waits for the credit of its last chunk
		{"7s", offer("h", m3), "", "11s"}, // agent h has sent this offer before its latest start
		{"7s", reboot("h", 2, m3), "grant h 0-1 for 10000ms", "11s"},
		{"20s", Tick{}, "grant f 2-2 for 10000ms; grant a 0-0 for 10000ms; grant b 0-0 for 10000ms; " +
			"grant c 0-0 for 10000ms; grant d 0-0 for 10000ms; grant e 0-0 for 10000ms", "30s"},
	})
	checkReceiver(t, raw)
	if s := raw.Stats(); s.DroppedTransfers != 2 || s.ExpiredLeases != 7 {
		t.Errorf("%+v", s)
	}
}

func TestReceiverStats(t *testing.T) {
	raw := NewUpdateReceiver(tight())
	r := openingReceiver(raw)
	send := func(a wire.AgentID, k int) { r.Step(epoch, c3(a, k)) }
	r.Step(epoch, reboot("a", 2, m3))
	r.Step(epoch, reboot("b", 2, m3))
	r.Step(epoch, reboot("a", 1, m3))
	send("a", 0)
	send("a", 0)
	send("b", 0)
	r.Step(epoch, ChunkReceived{"a", UploadID(m3.Hash), []byte("noise")})
	want := ReceiverStats{
		ActiveTransfers: 1, QueuedTransfers: 1, BufferedBytes: len(three), OutstandingChunks: 1,
		OutstandingBytes: maxChunkMessageBytes,
		SentCredits:      1, StoredChunks: 1, DuplicateChunks: 1, CorruptChunks: 1, UnknownChunks: 1, StaleOffers: 1,
	}
	if got := raw.Stats(); got != want {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestReceiverWindowFollowsTheLink(t *testing.T) {
	blob := blobOf(13, 60*wire.MaxChunkBytes)
	m := manifestOf(blob)
	cfg := DefaultReceiverConfig()
	r := openingReceiver(NewUpdateReceiver(cfg))
	lent := func(effects []ReceiveEffect) (n int) {
		for _, c := range effects[0].(GrantCredit).Credit.Chunks {
			n += int(c.Last-c.First) + 1
		}
		return n
	}
	now := epoch
	sizes := []int{lent(r.Step(now, offer("a", m)))}
	for range 3 {
		now = now.Add(cfg.LeaseDuration)
		sizes = append(sizes, lent(r.Step(now, Tick{})))
	}
	for k := range 4 + 8 {
		if effects := r.Step(now, chunkOf("a", m, blob, k)); len(effects) > 0 {
			sizes = append(sizes, lent(effects))
		}
	}
	slow := now // one chunk every 5 s: no lease ends, but the credit takes longer than a lease
	for k := 12; k < 28; k++ {
		slow = slow.Add(5 * time.Second)
		if at, ok := r.Deadline(); !ok || !slow.Before(at) {
			t.Fatalf("the lease ends at %v, before chunk %d", at.Sub(epoch), k)
		}
		if effects := r.Step(slow, chunkOf("a", m, blob, k)); len(effects) > 0 {
			sizes = append(sizes, lent(effects))
		}
	}
	if want := []int{16, 8, 4, 4, 8, 16, 8}; !slices.Equal(sizes, want) {
		t.Errorf("windows %v, want %v", sizes, want)
	}
}

func TestReceiverConfigValidate(t *testing.T) {
	if err := DefaultReceiverConfig().Validate(); err != nil {
		t.Error(err)
	}
	bad := DefaultReceiverConfig()
	bad.MaxBufferedBytes = bad.MaxUpdateBytes - 1
	bad.MaxOutstandingChunks = bad.WindowChunks - 1
	bad.MaxOutstandingBytes = bad.WindowChunks*maxChunkMessageBytes - 1
	bad.LeaseDuration, bad.MaxEmptyLeases = 0, 0
	err := bad.Validate()
	for _, field := range []string{"MaxBuffered", "MaxOutstandingChunks", "MaxOutstandingBytes", "LeaseDuration is",
		"Leases"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not in %v", field, err)
		}
	}
}

// checkReceiver recomputes the receiver's counters and checks them against the limits.
func checkReceiver(t testing.TB, r *UpdateReceiver) {
	t.Helper()
	buffered, chunks, bytes, waiting := 0, 0, 0, 0
	for _, room := range r.storingBytesByAgent {
		buffered += room
	}
	opening := 0
	for agent, tr := range r.transferByAgent {
		if tr.reservedBytes > 0 && tr.storage == nil {
			opening++
		}
		buffered += tr.reservedBytes
		chunks += len(tr.creditedChunks)
		bytes += tr.chunkMessageBytes(tr.creditedChunks)
		if len(tr.creditedChunks) == 0 {
			waiting++
		}
		if leased := r.leasedTransferByAgent[agent]; (leased == tr) != (len(tr.creditedChunks) > 0) ||
			tr.waitsForRoom != slices.Contains(r.agentsAwaitingRoom, agent) {
			t.Fatalf("%s: %d chunks lent, listed as leased: %t; listed as waiting: %t", agent, len(tr.creditedChunks),
				leased == tr, tr.waitsForRoom)
		}
		if len(tr.creditedChunks) > r.cfg.WindowChunks || tr.missingChunks == 0 ||
			tr.reservedBytes > r.cfg.MaxUpdateBytes {
			t.Fatalf("%s: %d chunks lent, %d missing, %d bytes", agent, len(tr.creditedChunks), tr.missingChunks,
				tr.reservedBytes)
		}
	}
	s := r.Stats()
	if len(r.leasedTransferByAgent) > chunks {
		t.Fatalf("%d leases for %d chunks", len(r.leasedTransferByAgent), chunks)
	}
	if s.BufferedBytes != buffered || s.OutstandingChunks != chunks || s.OutstandingBytes != bytes ||
		waiting != len(r.agentsAwaitingRoom)+len(r.agentsAwaitingCredit)+opening {
		t.Fatalf("%d bytes, %d chunks of %d bytes lent, %d waiting; the receiver says %+v", buffered, chunks, bytes,
			waiting, s)
	}
	if buffered > r.cfg.MaxBufferedBytes || chunks > r.cfg.MaxOutstandingChunks || bytes > r.cfg.MaxOutstandingBytes {
		t.Fatalf("over the bounds: %+v", s)
	}
	if len(r.agentsAwaitingCredit) > 0 && chunks == 0 {
		t.Fatalf("nothing is lent and %v waits for credit", r.agentsAwaitingCredit)
	}
	if len(r.agentsAwaitingRoom) > 0 && buffered == 0 {
		t.Fatalf("no room is taken and %v waits for it", r.agentsAwaitingRoom)
	}
}

// TestReceiverTakesWhatIsAhead checks that chunks sent without a credit (unsolicited) are treated like credited chunks.
// The other chunks are credited immediately, and so are unsolicited chunks that do not arrive.
func TestReceiverTakesWhatIsAhead(t *testing.T) {
	ahead := func(a wire.AgentID, m wire.Manifest, n int) UpdateOffer {
		return UpdateOffer{Agent: a, AgentBootEpoch: 1, Manifest: m, UnsolicitedChunks: n}
	}
	playReceiver(t, map[string][]step[ReceiveEvent]{
		"all of it": {
			{"0s", ahead("a", m2, 4), "", "10s"},
			{"0s", c2("a", 0), "", "10s"},
			{"0s", c2("a", 1), "complete a 61417", ""},
		},
		"the rest is lent at once": {
			{"0s", ahead("a", m3, 1), "grant a 1-1 for 10000ms", "10s"},
			{"0s", c3("a", 0), "", "10s"},
			{"1s", c3("a", 1), "grant a 2-2 for 10000ms", "11s"},
			{"2s", c3("a", 2), "complete a 184248", ""},
		},
		"lost, and offered again": {
			{"0s", ahead("a", m2, 2), "", "10s"},
			{"0s", c2("a", 1), "", "10s"},
			{"2s", offer("a", m2), "grant a 0-0 for 8000ms", "10s"},
			{"3s", c2("a", 0), "complete a 61417", ""},
		},
		"lost, and the lease ends": {
			{"0s", ahead("a", m2, 2), "", "10s"},
			{"10s", Tick{}, "grant a 0-1 for 10000ms", "20s"},
		},
		"before the offer": {
			{"0s", c2("a", 0), "", ""},
			{"0s", ahead("a", m2, 2), "", "10s"},
			{"2s", offer("a", m2), "grant a 0-1 for 8000ms", "10s"},
		},
		"they count as outstanding": {
			{"0s", ahead("a", m2, 2), "", "10s"},
			{"1s", offer("b", m2), "", "10s"},
			{"2s", c2("a", 0), "grant b 0-1 for 10000ms", "12s"},
		},
	})
	t.Run("before there is room, and a storage", func(t *testing.T) {
		r := NewUpdateReceiver(tight())
		memory := StorageOpened{Agent: "b", BlobDigest: m3.Hash, Storage: NewMemoryChunkStorage(int(m3.BlobLength))}
		play(t, r, []step[ReceiveEvent]{
			{"0s", ahead("a", m3, 2), "open 184248 a", ""},
			{"0s", ahead("b", m3, 2), "", ""},
			{"0s", c3("b", 0), "", ""},
			{"0s", c3("b", 1), "", ""},
			{"0s", c3("b", 2), "", ""}, // the chunk is not part of the first credit
			{"1s", DropAgent{"a"}, "open 184248 b", ""},
			{"1s", memory, "grant b 2-2 for 10000ms", "11s"},
			{"2s", c3("b", 2), "complete b 184248", ""},
		})
		if s := r.Stats(); s.UnknownChunks != 1 || s.StoredChunks != 3 {
			t.Errorf("%+v", s)
		}
	})
}
