package wire

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sort"
)

const (
	// MaxRevokedAgents bounds the devices that a root document revokes.
	MaxRevokedAgents = 256
	// MaxRootDocumentBytes bounds a root document, in bytes: it rides inside a certificate.
	MaxRootDocumentBytes = 16 << 10
	// maxRootKeys bounds the root keys, and the coordinator's keys.
	maxRootKeys = 8
)

// SigningPublicKey is an Ed25519 public key.
type SigningPublicKey [ed25519.PublicKeySize]byte

// Ed25519 returns the key in the form of its package.
func (k SigningPublicKey) Ed25519() ed25519.PublicKey { return k[:] }

// SigningPublicKeyOf returns the public part of a private key.
func SigningPublicKeyOf(key ed25519.PrivateKey) SigningPublicKey {
	return SigningPublicKey(key[ed25519.SeedSize:])
}

// Signature is an Ed25519 signature.
type Signature [ed25519.SignatureSize]byte

// RootDocument says whose keys count in a federation. The root key signs nothing else, so it can be kept where no
// network reaches.
type RootDocument struct {
	Federation        FederationName
	Version           RootVersion
	RootKey           SigningPublicKey // of the root
	CoordinatorKey    SigningPublicKey // whose announcements count
	CACertificateHash Digest           // of the certificate of the federation's authority, in DER; zero = none
	RevokedAgents     []AgentID        // may take part no more; ascending
	// further keys of the coordinator, while one takes the place of another; ascending
	ExtraCoordinatorKeys []SigningPublicKey
	RootQuorum           RootQuorum // where there is not one root key alone
	Extra                UnknownSections

	PreviousRootSignature Signature // by a root key of the version before; zero in FirstRootVersion
	RootKeySignature      Signature // by RootKey
	// by further root keys of this version or the one before; ascending. Only with a RootQuorum
	Cosignatures []RootCosignature
}

// RootQuorum are root keys that are held apart: so many of them must sign each version.
type RootQuorum struct {
	Threshold uint8              // from 1; 0 = RootKey is the only one
	ExtraKeys []SigningPublicKey // those besides RootKey; ascending
}

// RootCosignature is a signature of a root document.
type RootCosignature struct {
	SignerKey SigningPublicKey
	Signature Signature
}

// RootKeys are all root keys of the version, ascending.
func (d *RootDocument) RootKeys() []SigningPublicKey {
	return sortedSigningKeys(append([]SigningPublicKey{d.RootKey}, d.RootQuorum.ExtraKeys...))
}

// RootThreshold is how many of RootKeys must have signed the version, and the one that follows.
func (d *RootDocument) RootThreshold() int { return max(1, int(d.RootQuorum.Threshold)) }

// CoordinatorKeys are the keys whose announcements count, the one that is to stay first.
func (d *RootDocument) CoordinatorKeys() []SigningPublicKey {
	return append([]SigningPublicKey{d.CoordinatorKey}, d.ExtraCoordinatorKeys...)
}

func sortedSigningKeys(keys []SigningPublicKey) []SigningPublicKey {
	sort.Slice(keys, func(i, j int) bool { return bytes.Compare(keys[i][:], keys[j][:]) < 0 })
	return keys
}

// ErrInvalidRootDocument reports a root document that does not count.
var ErrInvalidRootDocument = errors.New("the root document does not count")

// Sign signs the document. before is the root key of the version before, which may be the same; nil for
// FirstRootVersion.
func (d *RootDocument) Sign(key, before ed25519.PrivateKey) {
	d.RootKey = SigningPublicKeyOf(key)
	text := d.signedText()
	d.RootKeySignature, d.PreviousRootSignature = Signature(ed25519.Sign(key, text)), Signature{}
	if before != nil {
		d.PreviousRootSignature = Signature(ed25519.Sign(before, text))
	}
}

// Cosign adds the signature of a further root key, if there is a RootQuorum, and replaces an earlier one by that key.
func (d *RootDocument) Cosign(key ed25519.PrivateKey) {
	by := RootCosignature{SigningPublicKeyOf(key), Signature(ed25519.Sign(key, d.signedText()))}
	i, is := slices.BinarySearchFunc(d.Cosignatures, by.SignerKey, func(s RootCosignature, k SigningPublicKey) int {
		return bytes.Compare(s.SignerKey[:], k[:])
	})
	if is {
		d.Cosignatures[i] = by
		return
	}
	d.Cosignatures = slices.Insert(d.Cosignatures, i, by)
}

// countSigners returns how many of some root keys have signed.
func (d *RootDocument) countSigners(keys []SigningPublicKey) (n int) {
	text := d.signedText()
	for _, k := range keys {
		verified := func(s Signature) bool { return ed25519.Verify(k[:], text, s[:]) }
		if k == d.RootKey && verified(d.RootKeySignature) || verified(d.PreviousRootSignature) ||
			slices.ContainsFunc(d.Cosignatures, func(s RootCosignature) bool {
				return s.SignerKey == k &&
					verified(s.Signature)
			}) {
			n++
		}
	}
	return n
}

// signedText returns what is signed.
func (d *RootDocument) signedText() []byte { return rootSignedText(d.encodeFields()) }

func rootSignedText(fields []byte) []byte { return append([]byte("fedmesh/v2/root\x00"), fields...) }

// encodeFields is the encoding up to the signatures.
func (d *RootDocument) encodeFields() []byte {
	var w writer
	w.str(string(d.Federation))
	w.u32(uint32(d.Version))
	w.encoded = append(w.encoded, d.RootKey[:]...)
	w.encoded = append(w.encoded, d.CoordinatorKey[:]...)
	w.digest(d.CACertificateHash)
	w.u32(uint32(len(d.RevokedAgents)))
	for _, id := range d.RevokedAgents {
		w.str(string(id))
	}
	w.bodySections(d.sectionCodecs(), d.Extra)
	return w.encoded
}

// sectionCodecs are the sections. Further keys of the coordinator are for devices that know them; a threshold is for
// all.
func (d *RootDocument) sectionCodecs() []sectionCodec {
	return []sectionCodec{
		{"coordinators", IgnoreUnknownSection, func(w *writer) {
			if len(d.ExtraCoordinatorKeys) > 0 {
				w.signingKeys(d.ExtraCoordinatorKeys)
			}
		}, func(r *reader) {
			d.ExtraCoordinatorKeys = r.signingKeys("further keys of the coordinator")
			if slices.Contains(d.ExtraCoordinatorKeys, d.CoordinatorKey) {
				r.failf("the coordinator's key is there twice")
			}
		}},
		{"roots", DeclineUnknownSection, func(w *writer) {
			if d.RootQuorum.Threshold > 0 {
				w.u8(d.RootQuorum.Threshold)
				w.signingKeys(d.RootQuorum.ExtraKeys)
			}
		}, func(r *reader) {
			d.RootQuorum = RootQuorum{r.u8(), r.signingKeys("further root keys")}
			if n := len(d.RootQuorum.ExtraKeys) + 1; int(d.RootQuorum.Threshold) > n {
				r.failf("%d of %d root keys must sign", d.RootQuorum.Threshold, n)
			}
			if slices.Contains(d.RootQuorum.ExtraKeys, d.RootKey) {
				r.failf("the root key is there twice")
			}
		}},
	}
}

func (w *writer) signingKeys(keys []SigningPublicKey) {
	w.u32(uint32(len(keys)))
	for _, k := range keys {
		w.encoded = append(w.encoded, k[:]...)
	}
}

// requireAscendingKeys fails unless the key comes after the one before it, if there is one.
func (r *reader) requireAscendingKeys(what string, before *SigningPublicKey, key SigningPublicKey) {
	if before != nil && r.err == nil && bytes.Compare(before[:], key[:]) >= 0 {
		r.failf("%s: %x after %x: they must ascend", what, key[:4], before[:4])
	}
}

func (r *reader) signingKeys(what string) (keys []SigningPublicKey) {
	var before *SigningPublicKey
	for range r.listLength(what, maxRootKeys-1, len(SigningPublicKey{})) {
		keys = append(keys, SigningPublicKey(r.digest()))
		r.requireAscendingKeys(what, before, keys[len(keys)-1])
		before = &keys[len(keys)-1]
	}
	return keys
}

func (r *reader) rootCosignatures() (all []RootCosignature) {
	var before *SigningPublicKey
	for range r.listLength("signatures", 2*maxRootKeys, len(SigningPublicKey{})+len(Signature{})) {
		s := RootCosignature{SignerKey: SigningPublicKey(r.digest())}
		copy(s.Signature[:], r.takeBytes(len(s.Signature)))
		r.requireAscendingKeys("signatures", before, s.SignerKey)
		all = append(all, s)
		before = &all[len(all)-1].SignerKey
	}
	return all
}

// Bytes returns the document's encoding.
func (d *RootDocument) Bytes() []byte {
	w := writer{d.encodeFields()}
	w.encoded = append(w.encoded, d.PreviousRootSignature[:]...)
	w.encoded = append(w.encoded, d.RootKeySignature[:]...)
	if d.RootQuorum.Threshold > 0 {
		w.u32(uint32(len(d.Cosignatures)))
		for _, s := range d.Cosignatures {
			w.encoded = append(append(w.encoded, s.SignerKey[:]...), s.Signature[:]...)
		}
	}
	return w.encoded
}

// DecodeRootDocument reads a root document, and does not look at its signatures.
func DecodeRootDocument(p []byte) (RootDocument, error) {
	if len(p) > MaxRootDocumentBytes {
		return RootDocument{}, fmt.Errorf("root document: %d bytes, more than %d", len(p), MaxRootDocumentBytes)
	}
	r := reader{unread: p}
	d := RootDocument{Federation: FederationName(r.str("federation", MaxFederation)), Version: RootVersion(r.u32()),
		RootKey: SigningPublicKey(r.digest()), CoordinatorKey: SigningPublicKey(r.digest()),
		CACertificateHash: r.digest()}
	for range r.listLength("revoked devices", MaxRevokedAgents, 3) {
		id := AgentID(r.str("revoked device", MaxAgentID))
		if n := len(d.RevokedAgents); r.err == nil && n > 0 && d.RevokedAgents[n-1] >= id {
			r.failf("device %q after %q: they must ascend", id, d.RevokedAgents[n-1])
		}
		if r.err == nil {
			r.fail(id.ValidateNonCoordinator())
		}
		d.RevokedAgents = append(d.RevokedAgents, id)
	}
	d.Extra = r.bodySections(d.sectionCodecs())
	copy(d.PreviousRootSignature[:], r.takeBytes(len(d.PreviousRootSignature)))
	copy(d.RootKeySignature[:], r.takeBytes(len(d.RootKeySignature)))
	if d.RootQuorum.Threshold > 0 {
		d.Cosignatures = r.rootCosignatures()
	}
	if r.err == nil {
		r.fail(d.Federation.Validate())
	}
	if r.err == nil && d.Version < FirstRootVersion {
		r.failf("its version is 0, they count from 1")
	}
	return d, r.finish("root document")
}

// DecodeAndVerifyRootDocument reads a root document that its own root keys have signed, and that asks for nothing that
// this build does not know. Whether its root key is the right one is for the caller: by its Pin, or by the version
// before.
func DecodeAndVerifyRootDocument(p []byte) (RootDocument, error) {
	d, err := DecodeRootDocument(p)
	if err != nil {
		return d, err
	}
	if !ed25519.Verify(d.RootKey[:], d.signedText(), d.RootKeySignature[:]) {
		return d, fmt.Errorf("%w: it is not signed by the root key that it names", ErrInvalidRootDocument)
	}
	if err := d.Extra.CheckSupported(); err != nil {
		return d, fmt.Errorf("root document: %w", err)
	}
	if n := d.countSigners(d.RootKeys()); n < d.RootThreshold() {
		return d, fmt.Errorf("%w: %d of its root keys have signed it, it wants %d", ErrInvalidRootDocument, n,
			d.RootThreshold())
	}
	return d, nil
}

// CheckSuccession reports why the document, which DecodeAndVerifyRootDocument has read, may not take the place of one
// that is held: it must have the next version, and the signatures that the held one wants.
func (d *RootDocument) CheckSuccession(held *RootDocument) error {
	switch {
	case d.Federation != held.Federation:
		return fmt.Errorf("%w: it is of the federation %s, not of %s", ErrInvalidRootDocument, d.Federation,
			held.Federation)
	case d.Version != held.Version+1:
		return fmt.Errorf("%w: it has version %d, after version %d comes %d", ErrInvalidRootDocument, d.Version,
			held.Version,
			held.Version+1)
	}
	if n := d.countSigners(held.RootKeys()); n < held.RootThreshold() {
		return fmt.Errorf("%w: version %d is not signed by the root key of version %d: %d signatures, want %d",
			ErrInvalidRootDocument,
			d.Version, held.Version, n, held.RootThreshold())
	}
	return nil
}

// RootPin is the first bytes of the SHA-256 of a root's public key or, where there are several, of all of them with
// their threshold: whoever has it from a person knows the root.
type RootPin [16]byte

// RootPin returns the pin of a root key.
func (k SigningPublicKey) RootPin() RootPin {
	sum := sha256.Sum256(k[:])
	return RootPin(sum[:])
}

// RootPin returns the pin of the document's root: of its key or, where there are several, of all with their threshold.
func (d *RootDocument) RootPin() RootPin {
	if d.RootQuorum.Threshold == 0 {
		return d.RootKey.RootPin()
	}
	w := writer{append([]byte("fedmesh/v2/roots\x00"), d.RootQuorum.Threshold)}
	w.signingKeys(d.RootKeys())
	sum := sha256.Sum256(w.encoded)
	return RootPin(sum[:])
}
