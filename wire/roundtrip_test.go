package wire_test

import (
	"bytes"
	"reflect"
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/wire"
)

// TestBodies checks that decoding an encoded message body gives an equal value, and that encoding this value gives the
// same bytes.
func TestBodies(t *testing.T) {
	for i, f := range forms() {
		t.Run(f.name, func(t *testing.T) {
			rng := seeded(uint64(i))
			for range 300 {
				m := f.random(rng)
				p := f.encode(m)
				got, err := f.decode(p)
				if err != nil {
					t.Fatalf("%+v: %v", m, err)
				}
				if !reflect.DeepEqual(got, m) {
					t.Fatalf("read %+v, written was %+v", got, m)
				}
				if again := f.encode(got); !bytes.Equal(again, p) {
					t.Fatalf("%+v was written as %x, then as %x", m, p, again)
				}
			}
		})
	}
}

// TestEnvelopes checks that signing and parsing an envelope preserves the header and the body, whatever dst already
// contains.
func TestEnvelopes(t *testing.T) {
	rng := seeded(1)
	for _, typ := range types() {
		for range 20 {
			h, body, before := randomHeader(rng, typ), randomBytes(rng, rng.IntN(2000)), randomBytes(rng, rng.IntN(10))
			p := wire.SignEnvelope(bytes.Clone(before), h, body, testKey())
			if !bytes.HasPrefix(p, before) {
				t.Fatalf("Seal changed dst")
			}
			e, err := wire.ParseEnvelope(p[len(before):])
			if err != nil {
				t.Fatalf("%+v: %v", h, err)
			}
			if err := e.Verify(testPublicKey()); err != nil {
				t.Fatalf("%+v: %v", h, err)
			}
			if e.Header != h || !bytes.Equal(e.Body, body) {
				t.Fatalf("read %+v and body %x, written was %+v and %x", e.Header, e.Body, h, body)
			}
			if got, want := e.Digest(), digestOf(p[len(before):][:headerSize]); got != want {
				t.Fatalf("digest is %v, the SHA-256 of the header %v", got, want)
			}
		}
	}
}

// TestLargest checks that message bodies of the maximum size fit into a message.
func TestLargest(t *testing.T) {
	h := randomHeader(seeded(2), wire.TypeUpdate)
	p := wire.SignEnvelope(nil, h, make([]byte, wire.MaxBody), testKey())
	if len(p) != wire.MaxMessage {
		t.Errorf("the largest envelope has %d bytes, not %d", len(p), wire.MaxMessage)
	}
	if _, err := wire.ParseEnvelope(p); err != nil {
		t.Error(err)
	}
	m, err := wire.NewManifest(make([]byte, wire.MaxBlobBytes), wire.Digest{})
	if err != nil {
		t.Fatal(err)
	}
	u := wire.Update{Kind: wire.KindTraining, PayloadManifest: m}
	if n := len(u.Body()); n > wire.MaxBody {
		t.Errorf("the update of the largest blob has a body of %d bytes, over %d", n, wire.MaxBody)
	}
	if _, err := wire.DecodeUpdate(u.Body()); err != nil {
		t.Error(err)
	}
	if n := len(wire.AppendChunkMessage(nil, m.Hash, 0, wire.ChunkPayload(make([]byte, wire.MaxBlobBytes),
		0))); n != 60<<10 {
		t.Errorf("a full chunk has %d bytes, not 60 KiB", n)
	}
	for _, n := range []int{0, wire.MaxBlobBytes + 1} {
		if _, err := wire.NewManifest(make([]byte, n), wire.Digest{}); err == nil {
			t.Errorf("a blob of %d bytes has a manifest", n)
		}
	}
}

// TestChunks checks that the chunks of a blob, joined together, are equal to the blob.
func TestChunks(t *testing.T) {
	for _, n := range []int{1, wire.MaxChunkBytes - 1, wire.MaxChunkBytes, wire.MaxChunkBytes + 1,
		3 * wire.MaxChunkBytes} {
		blob := randomBytes(seeded(uint64(n)), n)
		m := manifestOf(blob, nil)
		if len(m.ChunkDigests) != wire.ChunkCount(n) {
			t.Fatalf("%d bytes: %d hashes for %d chunks", n, len(m.ChunkDigests), wire.ChunkCount(n))
		}
		var whole []byte
		for k, want := range m.ChunkDigests {
			part := wire.ChunkPayload(blob, k)
			if len(part) != m.ChunkLen(k) || digestOf(part) != want {
				t.Errorf("%d bytes: chunk %d has %d bytes or another hash, want %d", n, k, len(part), m.ChunkLen(k))
			}
			whole = append(whole, part...)
		}
		if !bytes.Equal(whole, blob) || m.Hash != hashOf(m.ChunkDigests) || m.Hash != wire.BlobDigest(blob) {
			t.Errorf("%d bytes: the chunks do not make up the blob", n)
		}
		for _, step := range []int{1000, wire.MaxChunkBytes, n} {
			sum := wire.NewBlobHasher()
			for piece := range slices.Chunk(blob, step) {
				_, _ = sum.Write(piece)
			}
			if got := sum.Digest(); got != m.Hash {
				t.Errorf("%d bytes, written by %d: %v, want %v", n, step, got, m.Hash)
			}
		}
		m.ChunkDigests[len(m.ChunkDigests)-1][0] ^= 1
		if _, err := wire.DecodeManifest(m.AppendEncoding(nil)); err == nil {
			t.Errorf("%d bytes: a manifest with a hash that is not that of its chunks is read", n)
		}
	}
}

// TestSealRefusesItsCallersMistakes checks that SignEnvelope panics if its arguments are invalid.
func TestSealRefusesItsCallersMistakes(t *testing.T) {
	good := randomHeader(seeded(3), wire.TypeHello)
	noType, farType, dash, slash := good, good, good, good
	noType.Type, farType.Type, dash.Federation, slash.Sender = 0, wire.TypeRenewalAnswer+1, "plant-7", "press/01"
	for name, c := range map[string]struct {
		header wire.Header
		body   int
	}{
		"no type": {noType, 1}, "unknown type": {farType, 1}, "federation with a dash": {dash, 1},
		"sender with a slash": {slash, 1}, "long body": {good, wire.MaxBody + 1},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: Seal did not panic", name)
				}
			}()
			wire.SignEnvelope(nil, c.header, make([]byte, c.body), testKey())
		}()
	}
}
