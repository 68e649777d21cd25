package wire_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/fedmesh/fedmesh/wire"
)

// goldenSecret returns the coordinator's seal secret in the golden files.
func goldenSecret() wire.SealSecret {
	var s wire.SealSecret
	for i := range s {
		s[i] = byte(0xa0 + i)
	}
	return s
}

func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}

func goldenGroup() wire.SealKey { return must(goldenSecret().GroupSealKey()) }

// goldenPair returns the encryption keys of a coordinator and an agent that both have the private key of the golden
// files.
func goldenPair() wire.AgentSealKeys { return must(goldenSecret().AgentSealKeys(testPublicKey())) }

func sealedAnnouncement() golden {
	g := openAnnouncement()
	a := *g.value.(*wire.Announcement)
	a.SealPublicKey, a.Task, a.BaseModel = must(goldenSecret().PublicKey()), a.Task.SealInline(goldenGroup()),
		a.BaseModel.SealInline(goldenGroup())
	a.CandidateModelFile = pulled(manifestOf(bigVector(), nil))
	a.CandidateModelFile.GroupKeyID = goldenGroup().ID()
	a.ReleasedModelFile = inline(smallVector()).SealInline(goldenGroup())
	a.Rollout = rolloutAnnouncement().value.(*wire.Announcement).Rollout
	return golden{"announcement_sealed", "announcement", byCoordinator(3, 19), &a}
}

// sealedIn returns a golden message whose body is encrypted with a key.
func sealedIn(file string, key wire.SealKey, h wire.Header, t wire.MessageType, body []byte) golden {
	return golden{file, "sealed", h,
		&sealed{key.SealMessage(must(goldenSecret().PublicKey()), h, t, body)}}
}

func goldensOfSeals() []golden {
	hello := wire.Hello{InstanceNonce: goldenNonce, FollowedAnnouncement: sealedAnnouncement().digest(), Samples: 1234,
		MissingGroupKeyID: goldenGroup().ID()}
	key := wire.GroupKeyDelivery{Key: goldenGroup()}
	vector := bigVector()
	return []golden{
		sealedAnnouncement(),
		{"hello_key", "hello", byAgent(goldenRun, 3, 12), &hello},
		sealedIn("sealed_hello", goldenPair().FromAgentKey, byAgent(goldenRun, 3, 12), wire.TypeHello, hello.Body()),
		{"key", "key", byCoordinator(3, 20), &key},
		sealedIn("sealed_key", goldenPair().ToAgentKey, byCoordinator(3, 20), wire.TypeGroupKeyDelivery, key.Body()),
		{"chunk_sealed", "chunk", wire.Header{}, &chunk{K: 1,
			Payload: goldenGroup().BlobSealer(chunkBlob).SealPart(nil, 1, wire.ChunkPayload(vector, 1))}},
	}
}

// TestSealPair checks that the coordinator and an agent derive the same keys, and that other agents or coordinators
// derive different keys.
func TestSealPair(t *testing.T) {
	public := must(goldenSecret().PublicKey())
	agent := must(wire.NewAgentSealKeys(testKey(), public))
	if agent != goldenPair() {
		t.Error("the ends have other keys")
	}
	if agent.FromAgentKey == agent.ToAgentKey || agent.FromAgentKey == goldenGroup() {
		t.Error("one key for two uses")
	}
	other := goldenSecret()
	other[0]++
	if must(other.AgentSealKeys(testPublicKey())) == agent || must(other.GroupSealKey()) == goldenGroup() ||
		must(other.GroupSealKey()).ID() == goldenGroup().ID() {
		t.Error("another secret has the same keys")
	}
	if must(wire.NewAgentSealKeys(testKey(), must(other.PublicKey()))) == agent {
		t.Error("another announced key gives the same keys")
	}
	if _, err := wire.NewAgentSealKeys(testKey(), wire.X25519PublicKey{1}); err == nil {
		t.Error("a key of small order was taken")
	}
}

// openedAs decrypts a body as the body of a TypeSealed envelope with the header h.
func openedAs(key wire.SealKey, h wire.Header, body []byte) (wire.Envelope, error) {
	if len(body) > wire.MaxBody {
		return wire.Envelope{}, wire.ErrMalformed
	}
	h.Type = wire.TypeSealed
	return key.OpenMessage(must(wire.ParseEnvelope(wire.SignEnvelope(nil, h, body, testKey()))))
}

// TestSealedMessages checks that the key decrypts the message type and the body. Decryption must fail with another key
// or after a change of the message.
func TestSealedMessages(t *testing.T) {
	e := must(wire.ParseEnvelope(readGolden(t, "sealed_hello")))
	opened, err := goldenPair().FromAgentKey.OpenMessage(e)
	want := must(wire.ParseEnvelope(readGolden(t, "hello_key")))
	if err != nil || opened.Type != wire.TypeHello || !bytes.Equal(opened.Body, want.Body) {
		t.Fatalf("a %s of %x: %v", opened.Type, opened.Body, err)
	}
	if again, err := wire.ParseEnvelope(opened.Bytes()); err != nil || again.Type != wire.TypeHello ||
		!bytes.Equal(again.Body, want.Body) || again.Header != opened.Header {
		t.Errorf("opened as %+v: %v", again, err)
	}
	if !wire.IsSealedToKey(e.Body, must(goldenSecret().PublicKey())) || wire.IsSealedToKey(e.Body,
		wire.X25519PublicKey{1}) {
		t.Error("the key that it is sealed to is not told")
	}
	for i := range e.Body {
		changed := bytes.Clone(e.Body)
		changed[i] ^= 1
		if _, err := openedAs(goldenPair().FromAgentKey, e.Header, changed); i >= 8 && !errors.Is(err,
			wire.ErrSealDoesNotOpen) {
			t.Errorf("with another byte %d: %v", i, err)
		}
		if _, err := openedAs(goldenPair().FromAgentKey, e.Header, e.Body[:i]); err == nil {
			t.Errorf("the first %d bytes open", i)
		}
	}
	if _, err := goldenPair().ToAgentKey.OpenMessage(e); !errors.Is(err, wire.ErrSealDoesNotOpen) {
		t.Errorf("with the other direction's key: %v", err)
	}
	next := e.Header
	next.Sequence++
	twice := goldenPair().FromAgentKey.SealMessage(wire.X25519PublicKey{}, next, wire.TypeHello, want.Body)
	if bytes.Equal(twice[8:], e.Body[8:]) {
		t.Error("two messages with one body look alike")
	}
	for _, typ := range types() {
		sealed := goldenPair().FromAgentKey.SealMessage(wire.X25519PublicKey{}, e.Header, typ, want.Body)
		if _, err := openedAs(goldenPair().FromAgentKey, e.Header, sealed); (err == nil) != typ.MustBeSealed() {
			t.Errorf("a sealed %s: %v", typ, err)
		}
	}
}

// TestSealedInPlace checks that decryption of a sealed message fails if the header contains another sender, run, round
// or federation, even with the same key. Therefore another sender cannot sign the message again, and the message
// cannot be moved to another round.
func TestSealedInPlace(t *testing.T) {
	e := must(wire.ParseEnvelope(readGolden(t, "sealed_hello")))
	for name, change := range map[string]func(h *wire.Header){
		"federation": func(h *wire.Header) { h.Federation = "plant_8" },
		"sender":     func(h *wire.Header) { h.Sender = "press-02" },
		"epoch":      func(h *wire.Header) { h.Epoch++ },
		"root":       func(h *wire.Header) { h.Root++ },
		"run":        func(h *wire.Header) { h.Run++ },
		"round":      func(h *wire.Header) { h.Round++ },
		"sequence":   func(h *wire.Header) { h.Sequence++ },
	} {
		h := e.Header
		change(&h)
		if _, err := openedAs(goldenPair().FromAgentKey, h, e.Body); !errors.Is(err, wire.ErrSealDoesNotOpen) {
			t.Errorf("in a message with another %s: %v", name, err)
		}
	}
	if _, err := openedAs(goldenPair().FromAgentKey, e.Header, e.Body); err != nil {
		t.Errorf("in its own: %v", err)
	}
}

// TestSealedBlobs checks that encrypting a blob is deterministic, and that a part can be decrypted only with its own
// part number.
func TestSealedBlobs(t *testing.T) {
	blob := bigVector()
	hash := wire.BlobDigest(blob)
	part := wire.ChunkPayload(blob, 1)
	sealed := goldenGroup().BlobSealer(hash).SealPart(nil, 1, part)
	if again := goldenGroup().BlobSealer(hash).SealPart(nil, 1, part); !bytes.Equal(again, sealed) {
		t.Error("sealed twice, it has other bytes")
	}
	if len(sealed) != len(part)+wire.SealOverhead || bytes.Contains(sealed, part[:8]) {
		t.Errorf("%d bytes sealed are %d", len(part), len(sealed))
	}
	if got, err := goldenGroup().BlobSealer(hash).OpenPart(nil, 1, sealed); err != nil || !bytes.Equal(got, part) {
		t.Errorf("opened: %v", err)
	}
	for name, open := range map[string]func() ([]byte, error){
		"another place": func() ([]byte, error) { return goldenGroup().BlobSealer(hash).OpenPart(nil, 2, sealed) },
		"the whole": func() ([]byte, error) {
			return goldenGroup().BlobSealer(hash).OpenPart(nil, wire.SealedWholeBlob,
				sealed)
		},
		"the manifest": func() ([]byte, error) { return goldenGroup().BlobSealer(hash).OpenManifest(sealed) },
		"another blob": func() ([]byte, error) {
			return goldenGroup().BlobSealer(wire.Digest{1}).OpenPart(nil, 1,
				sealed)
		},
		"another key": func() ([]byte, error) {
			return goldenPair().FromAgentKey.BlobSealer(hash).OpenPart(nil, 1,
				sealed)
		},
		"cut short": func() ([]byte, error) { return goldenGroup().BlobSealer(hash).OpenPart(nil, 1, sealed[1:]) },
		"nothing":   func() ([]byte, error) { return goldenGroup().BlobSealer(hash).OpenPart(nil, 1, nil) },
	} {
		if _, err := open(); !errors.Is(err, wire.ErrSealDoesNotOpen) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSealedManifests checks that a blob with two schemas has two different encrypted manifests, which never share a
// key and nonce.
func TestSealedManifests(t *testing.T) {
	linear, other := manifestOf(bigVector(), bigSchema()), manifestOf(bigVector(), nil)
	seal := goldenGroup().BlobSealer(linear.Hash)
	if linear.Hash != other.Hash || bytes.Equal(linear.AppendEncoding(nil), other.AppendEncoding(nil)) {
		t.Fatal("these are not two manifests of one blob")
	}
	a, b := seal.SealManifest(linear.AppendEncoding(nil)), seal.SealManifest(other.AppendEncoding(nil))
	if bytes.Equal(a[:16], b[:16]) {
		t.Error("two manifests are sealed with one key and nonce")
	}
	if again := seal.SealManifest(linear.AppendEncoding(nil)); !bytes.Equal(again, a) {
		t.Error("sealed twice, it has other bytes")
	}
	if got, err := seal.OpenManifest(a); err != nil || !bytes.Equal(got, linear.AppendEncoding(nil)) {
		t.Errorf("opened: %v", err)
	}
	for i := range a {
		changed := bytes.Clone(a)
		changed[i] ^= 1
		if _, err := seal.OpenManifest(changed); !errors.Is(err, wire.ErrSealDoesNotOpen) {
			t.Fatalf("with another byte %d: %v", i, err)
		}
	}
	for name, err := range map[string]error{
		"of another blob":  second(goldenGroup().BlobSealer(wire.Digest{1}).OpenManifest(a)),
		"by another key":   second(goldenPair().FromAgentKey.BlobSealer(linear.Hash).OpenManifest(a)),
		"cut short":        second(seal.OpenManifest(a[:len(a)-1])),
		"cut to its salt":  second(seal.OpenManifest(a[:16])),
		"cut in its salt":  second(seal.OpenManifest(a[:15])),
		"as a chunk of it": second(seal.OpenPart(nil, 0, a)),
	} {
		if !errors.Is(err, wire.ErrSealDoesNotOpen) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestSealedInAnnouncement checks that the key decrypts an encrypted inline blob, and that the content of the blob is
// verified against the blob's hash.
func TestSealedInAnnouncement(t *testing.T) {
	a := sealedAnnouncement().value.(*wire.Announcement)
	got := must(wire.DecodeAnnouncement(a.Body()))
	if got.BaseModel.GroupKeyID != goldenGroup().ID() ||
		got.CandidateModelFile.GroupKeyID != got.BaseModel.GroupKeyID ||
		len(got.BaseModel.Inline) > 0 {
		t.Errorf("read %+v", got.BaseModel)
	}
	base := must(got.BaseModel.OpenSealed(goldenGroup()))
	if !bytes.Equal(base.Inline, smallVector()) || base.Hash != wire.BlobDigest(smallVector()) ||
		!base.ManifestHash.IsZero() || base.GroupKeyID != 0 {
		t.Errorf("opened as %+v", base)
	}
	if _, err := got.BaseModel.OpenSealed(goldenPair().FromAgentKey); !errors.Is(err, wire.ErrSealDoesNotOpen) {
		t.Errorf("with another key: %v", err)
	}
	lie := inline(smallVector())
	lie.Inline = bytes.Clone(lie.Inline)
	lie.Inline[0]++
	if _, err := lie.SealInline(goldenGroup()).OpenSealed(goldenGroup()); err == nil {
		t.Error("another blob than its hash says was taken")
	}
	for name, change := range map[string]func(a *wire.Announcement){
		"other bytes": func(a *wire.Announcement) {
			a.BaseModel.SealedInline = bytes.Repeat([]byte{1},
				len(a.BaseModel.SealedInline))
		},
		"a length":    func(a *wire.Announcement) { a.BaseModel.Length++ },
		"inline, too": func(a *wire.Announcement) { a.BaseModel = inline(smallVector()); a.BaseModel.GroupKeyID = 1 },
	} {
		bad := *a
		change(&bad)
		if _, err := wire.DecodeAnnouncement(bad.Body()); err == nil {
			t.Errorf("%s: it was read", name)
		}
	}
}

// FuzzSealed decrypts fuzzed bytes as a message, a blob part and a manifest. Decryption must succeed only for data that
// were encrypted with the key.
func FuzzSealed(f *testing.F) {
	at, sealed := byAgent(goldenRun, 3, 12), must(wire.ParseEnvelope(readGolden(f, "sealed_hello"))).Body
	f.Add(sealed)
	f.Add(must(wire.ParseEnvelope(readGolden(f, "sealed_key"))).Body)
	f.Add(goldenPair().FromAgentKey.BlobSealer(wire.Digest{1}).SealManifest([]byte("m")))
	key := goldenPair().FromAgentKey
	f.Fuzz(func(t *testing.T, p []byte) {
		// The first 8 bytes of a sealed body only identify the key, so a body that differs in these bytes may still
		// open.
		if _, err := openedAs(key, at, p); err == nil && !bytes.Equal(p[8:], sealed[8:]) {
			t.Errorf("%x opens", p)
		}
		seal := key.BlobSealer(wire.Digest{2})
		if _, err := seal.OpenPart(nil, 0, p); err == nil {
			t.Errorf("%x opens as a part of a blob", p)
		}
		if _, err := seal.OpenManifest(p); err == nil {
			t.Errorf("%x opens as a manifest", p)
		}
	})
}

func BenchmarkSealedParts(b *testing.B) {
	part := bytes.Repeat(bigVector()[:8], wire.MaxChunkBytes/8)
	seal := goldenGroup().BlobSealer(wire.Digest{1})
	sealed := seal.SealPart(nil, 0, part)
	b.Run("seal", func(b *testing.B) {
		b.SetBytes(int64(len(part)))
		for b.Loop() {
			seal.SealPart(sealed[:0], 0, part)
		}
	})
	b.Run("open", func(b *testing.B) {
		b.SetBytes(int64(len(part)))
		opened := make([]byte, 0, len(part))
		for b.Loop() {
			must(seal.OpenPart(opened, 0, sealed))
		}
	})
	b.Run("sha256", func(b *testing.B) { // For comparison, measure the hash that is computed for each part in any case.
		b.SetBytes(int64(len(part)))
		for b.Loop() {
			wire.BlobDigest(part)
		}
	})
}
