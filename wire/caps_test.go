package wire_test

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/wire"
)

func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestClaimsAllocateNothing writes lengths of 256 MB, 4 GB and 64 KB to every position of every golden message body.
// For all three lengths together, the decoder must not allocate more memory than for one valid body of that size.
func TestClaimsAllocateNothing(t *testing.T) {
	le := binary.LittleEndian
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // ReadMemStats is faster with one processor
	for _, g := range goldens() {
		f := formNamed(t, g.form)
		body := bodyOf(f, readGolden(t, g.file))
		bound := uint64(64<<10 + 64*len(body))
		for at := range len(body) - 3 {
			p := bytes.Clone(body)
			n := allocated(func() {
				for _, claim := range []uint32{256 << 20, 1<<32 - 1, 1<<16 - 1} {
					le.PutUint32(p[at:], claim)
					_, _ = f.decode(p)
				}
			})
			if n > bound {
				t.Errorf("%s: at byte %d of %d: %d bytes allocated", g.file, at, len(body), n)
			}
		}
	}
}

// claim is a length or count in a message that exceeds its limit or the size of the message.
type claim struct {
	name, form, golden string
	after              string // bytes before the length field, which follows the first occurrence of these bytes
	value              uint32
	size               int // size of the field in bytes: 2 or 4
	want               string
}

func claims() []claim {
	blob := func(ref wire.BlobRef) string { return string(ref.Hash[:]) + string(ref.ManifestHash[:]) }
	big := manifestOf(bigVector(), bigSchema())
	task := inline(linearTask().AppendEncoding(nil))
	chunks := string(big.Hash[:]) + "\x4c\xf0\x00\x00\x01" + string(big.VectorSchema[:])
	update := wire.BlobDigest(bigVector())
	const standardized = "standardization\x02\x40\x00\x00\x00"
	const filtered = "conv1d\x02\x14\x00\x00\x00\x02\x00\x00\x00\x03\x00\x00\x00\x02\x00\x00\x00"
	lease := string(update[:]) + "\x20\x4e\x00\x00"
	return []claim{
		{"blob", "announcement", "announcement_pulled", blob(pulled(big)), wire.MaxBlobBytes + 1, 4,
			"exceeds the limit of"},
		{"inline blob over the limit", "announcement", "announcement_open", blob(task) + string(le32(task.Length)),
			wire.MaxInlineBlobBytes + 1, 4, "exceeds the limit of 49152"},
		{"inline blob over the body", "announcement", "announcement_open", blob(task) + string(le32(task.Length)),
			wire.MaxInlineBlobBytes, 4, "ends inside"},
		{"inline blob of 256 MB", "announcement", "announcement_open", blob(task) + string(le32(task.Length)),
			256 << 20, 4, "exceeds the limit of 49152"},
		{"chunks over the limit", "manifest", "manifest", chunks, wire.MaxBlobChunks + 1, 4,
			"exceeds the limit of 1900"},
		{"chunks over the body", "manifest", "manifest", chunks, wire.MaxBlobChunks, 4, "ends inside"},
		{"chunks of 256 MB", "manifest", "manifest", chunks, 256 << 20 / 32, 4, "exceeds the limit of 1900"},
		{"chunks and length", "manifest", "manifest", chunks, 1, 4, "number of chunks 1 for a blob of 61516 bytes"},
		{"length and chunks", "manifest", "manifest", string(big.Hash[:]), 1, 4,
			"number of chunks 2 for a blob of 1 bytes"},
		{"no length", "manifest", "manifest", string(big.Hash[:]), 0, 4, "number of chunks 2 for a blob of 0 bytes"},
		{"length over the limit", "manifest", "manifest", string(big.Hash[:]), wire.MaxBlobBytes + 1, 4,
			"for a blob of"},
		{"ranges over the limit", "credit", "credit", lease, wire.MaxCreditRanges + 1, 4, "exceeds the limit of 64"},
		{"ranges over the body", "credit", "credit", lease, wire.MaxCreditRanges, 4, "ends inside"},
		{"software over the limit", "presence", "presence_online",
			"\xef\xcd\xab\x89\x67\x45\x23\x01\x02", wire.MaxName + 1, 2, "exceeds the limit of 128"},
		{"software over the body", "presence", "presence_online", "\xef\xcd\xab\x89\x67\x45\x23\x01\x02", wire.MaxName,
			2, "ends inside"},
		{"features over the limit", "task", "task", "bearing wear", wire.MaxFeatures + 1, 4,
			"exceeds the limit of 65536"},
		{"features over the body", "task", "task", "bearing wear", wire.MaxFeatures, 4, "ends inside"},
		{"features of 256 MB", "task", "task", "bearing wear", 256 << 20, 4, "exceeds the limit of 65536"},
		{"feature over the limit", "task", "task", "bearing wear\x02\x00\x00\x00", wire.MaxName + 1, 2,
			"exceeds the limit of 128"},
		{"hidden layers over the limit", "task", "task", "\x04\x00wear", wire.MaxHiddenLayers + 1, 4,
			"exceeds the limit of 8"},
		{"filter layers over the limit", "task", "task_conv1d", filtered, wire.MaxHiddenLayers + 1, 4,
			"exceeds the limit of 8"},
		{"filter layers over the body", "task", "task_conv1d", filtered, wire.MaxHiddenLayers, 4, "ends inside"},
		{"means over the limit", "task", "task", standardized, wire.MaxFeatures + 2, 4,
			"exceeds the limit of 65537"},
		{"means over the body", "task", "task", standardized, wire.MaxFeatures + 1, 4,
			"ends inside"},
	}
}

func le32(x uint32) []byte { return binary.LittleEndian.AppendUint32(nil, x) }

// TestClaimsAreRefused checks that each invalid length is rejected with an error that names the exceeded limit.
func TestClaimsAreRefused(t *testing.T) {
	for _, c := range claims() {
		f := formNamed(t, c.form)
		p := bytes.Clone(bodyOf(f, readGolden(t, c.golden)))
		at := bytes.Index(p, []byte(c.after))
		if at < 0 {
			t.Fatalf("%s: the field is not where the test looks for it", c.name)
		}
		copy(p[at+len(c.after):], le32(c.value)[:c.size])
		var err error
		n := allocated(func() { _, err = f.decode(p) })
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
		if n > 16<<10 {
			t.Errorf("%s: %d bytes allocated", c.name, n)
		}
	}
}

// TestInlineUpdateIsSmall checks the maximum size of an update inside its own manifest. A larger update must wait for
// the coordinator's permission.
func TestInlineUpdateIsSmall(t *testing.T) {
	for n, ok := range map[int]bool{wire.MaxInlineUpdate: true, wire.MaxInlineUpdate + 1: false} {
		payload := make([]byte, n)
		u := wire.Update{Kind: wire.KindTraining, InlinePayload: payload, PayloadManifest: manifestOf(payload,
			smallSchema())}
		if _, err := wire.DecodeUpdate(u.Body()); (err == nil) != ok {
			t.Errorf("%d bytes inline: error %v", n, err)
		}
	}
}
