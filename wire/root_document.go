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
	// MaxRevokedAgents is the maximum number of devices that a root document revokes.
	MaxRevokedAgents = 256
	// MaxRootDocumentBytes is the maximum size of a root document, which is embedded in a certificate.
	MaxRootDocumentBytes = 16 << 10
	// maxRootKeys limits both the number of root keys and the number of coordinator keys in a document.
	maxRootKeys = 8
)

// SigningPublicKey is an Ed25519 public key.
type SigningPublicKey [ed25519.PublicKeySize]byte

// Ed25519 converts the key to an ed25519.PublicKey.
func (k SigningPublicKey) Ed25519() ed25519.PublicKey { return k[:] }

// SigningPublicKeyOf returns the public key of a private key.
func SigningPublicKeyOf(key ed25519.PrivateKey) SigningPublicKey {
	return SigningPublicKey(key[ed25519.SeedSize:])
}

// Signature is an Ed25519 signature.
type Signature [ed25519.SignatureSize]byte

// RootDocument defines which keys are valid in a federation. The root keys sign only root documents, so that they can
// be kept offline.
type RootDocument struct {
	Federation        FederationName
	Version           RootVersion
	RootKey           SigningPublicKey // root key that signs this document
	CoordinatorKey    SigningPublicKey // key with which the coordinator signs its messages
	CACertificateHash Digest           // SHA-256 of the certificate of the CA in DER; zero means that there is no CA
	RevokedAgents     []AgentID        // devices that may no longer take part, in ascending order of id
	// ExtraCoordinatorKeys lists further coordinator keys that are valid during a key change, in ascending order.
	ExtraCoordinatorKeys []SigningPublicKey
	RootQuorum           RootQuorum // further root keys; zero means that RootKey is the only one
	Extra                UnknownSections

	PreviousRootSignature Signature // signature by a root key of the previous version; zero in the first version
	RootKeySignature      Signature // signature of the document with RootKey
	// Cosignatures holds signatures by other root keys of this or the previous version, in ascending order. It is empty
	// without a RootQuorum.
	Cosignatures []RootCosignature
}

// RootQuorum describes root keys that are kept separately. At least Threshold of them must sign each version.
type RootQuorum struct {
	Threshold uint8              // number of required signatures; 0 means that RootKey is the only root key
	ExtraKeys []SigningPublicKey // root keys other than RootKey, in ascending order
}

// RootCosignature is a signature of a root document by a root key other than RootKey.
type RootCosignature struct {
	SignerKey SigningPublicKey
	Signature Signature
}

// RootKeys returns all root keys of this version, in ascending order.
func (d *RootDocument) RootKeys() []SigningPublicKey {
	return sortedSigningKeys(append([]SigningPublicKey{d.RootKey}, d.RootQuorum.ExtraKeys...))
}

// RootThreshold returns the number of root keys that must sign this version and the next version.
func (d *RootDocument) RootThreshold() int { return max(1, int(d.RootQuorum.Threshold)) }

// CoordinatorKeys returns all valid coordinator keys. The first key remains valid after a key change.
func (d *RootDocument) CoordinatorKeys() []SigningPublicKey {
	return append([]SigningPublicKey{d.CoordinatorKey}, d.ExtraCoordinatorKeys...)
}

func sortedSigningKeys(keys []SigningPublicKey) []SigningPublicKey {
	sort.Slice(keys, func(i, j int) bool { return bytes.Compare(keys[i][:], keys[j][:]) < 0 })
	return keys
}

// ErrInvalidRootDocument is the error for an invalid root document.
var ErrInvalidRootDocument = errors.New("invalid root document")

// Sign signs the document with key. The parameter before is the root key of the previous version, which may be the same
// key. It must be nil for FirstRootVersion.
func (d *RootDocument) Sign(key, before ed25519.PrivateKey) {
	d.RootKey = SigningPublicKeyOf(key)
	text := d.signedText()
	d.RootKeySignature, d.PreviousRootSignature = Signature(ed25519.Sign(key, text)), Signature{}
	if before != nil {
		d.PreviousRootSignature = Signature(ed25519.Sign(before, text))
	}
}

// Cosign adds a signature with another root key, or replaces the earlier signature with that key. The document must
// have a RootQuorum.
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

// countSigners returns how many of the given root keys have signed the document.
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

// signedText returns the text to be signed.
func (d *RootDocument) signedText() []byte { return rootSignedText(d.encodeFields()) }

func rootSignedText(fields []byte) []byte { return append([]byte("fedmesh/v2/root\x00"), fields...) }

// encodeFields returns the encoding of all fields before the signatures.
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

// sectionCodecs returns the codecs of the optional sections. A reader may ignore the section with further coordinator
// keys, but it must reject a document whose section with a threshold it does not know.
func (d *RootDocument) sectionCodecs() []sectionCodec {
	return []sectionCodec{
		{"coordinators", IgnoreUnknownSection, func(w *writer) {
			if len(d.ExtraCoordinatorKeys) > 0 {
				w.signingKeys(d.ExtraCoordinatorKeys)
			}
		}, func(r *reader) {
			d.ExtraCoordinatorKeys = r.signingKeys("extra coordinator keys")
			if slices.Contains(d.ExtraCoordinatorKeys, d.CoordinatorKey) {
				r.failf("duplicate coordinator key")
			}
		}},
		{"roots", DeclineUnknownSection, func(w *writer) {
			if d.RootQuorum.Threshold > 0 {
				w.u8(d.RootQuorum.Threshold)
				w.signingKeys(d.RootQuorum.ExtraKeys)
			}
		}, func(r *reader) {
			d.RootQuorum = RootQuorum{r.u8(), r.signingKeys("extra root keys")}
			if n := len(d.RootQuorum.ExtraKeys) + 1; int(d.RootQuorum.Threshold) > n {
				r.failf("threshold is %d but the document has only %d root keys", d.RootQuorum.Threshold, n)
			}
			if slices.Contains(d.RootQuorum.ExtraKeys, d.RootKey) {
				r.failf("duplicate root key")
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

// requireAscendingKeys sets an error unless key is greater than before. If before is nil, every key is accepted.
func (r *reader) requireAscendingKeys(what string, before *SigningPublicKey, key SigningPublicKey) {
	if before != nil && r.err == nil && bytes.Compare(before[:], key[:]) >= 0 {
		r.failf("%s: %x is listed after %x: keys must be in ascending order", what, key[:4], before[:4])
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

// DecodeRootDocument decodes a root document without verifying its signatures.
func DecodeRootDocument(p []byte) (RootDocument, error) {
	if len(p) > MaxRootDocumentBytes {
		return RootDocument{}, fmt.Errorf("root document has %d bytes, which exceeds the limit of "+
			"%d", len(p), MaxRootDocumentBytes)
	}
	r := reader{unread: p}
	d := RootDocument{Federation: FederationName(r.str("federation", MaxFederation)), Version: RootVersion(r.u32()),
		RootKey: SigningPublicKey(r.digest()), CoordinatorKey: SigningPublicKey(r.digest()),
		CACertificateHash: r.digest()}
	for range r.listLength("revoked devices", MaxRevokedAgents, 3) {
		id := AgentID(r.str("revoked device", MaxAgentID))
		if n := len(d.RevokedAgents); r.err == nil && n > 0 && d.RevokedAgents[n-1] >= id {
			r.failf("device %q is listed after %q: devices must be in ascending order", id, d.RevokedAgents[n-1])
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
		r.failf("version is 0: must be at least 1")
	}
	return d, r.finish("root document")
}

// DecodeAndVerifyRootDocument decodes a root document. It verifies the signatures with the document's own root keys,
// and checks that this build supports all sections of the document. The caller must check the root keys, either by a
// RootPin or by the previous version.
func DecodeAndVerifyRootDocument(p []byte) (RootDocument, error) {
	d, err := DecodeRootDocument(p)
	if err != nil {
		return d, err
	}
	if !ed25519.Verify(d.RootKey[:], d.signedText(), d.RootKeySignature[:]) {
		return d, fmt.Errorf("%w: not signed by its own root key", ErrInvalidRootDocument)
	}
	if err := d.Extra.CheckSupported(); err != nil {
		return d, fmt.Errorf("root document: %w", err)
	}
	if n := d.countSigners(d.RootKeys()); n < d.RootThreshold() {
		return d, fmt.Errorf("%w: signed by %d of its root keys, but %d are required", ErrInvalidRootDocument, n,
			d.RootThreshold())
	}
	return d, nil
}

// CheckSuccession returns an error if the document must not replace the document held. The document must have the next
// version number and enough signatures with the root keys of held. It must come from DecodeAndVerifyRootDocument.
func (d *RootDocument) CheckSuccession(held *RootDocument) error {
	switch {
	case d.Federation != held.Federation:
		return fmt.Errorf("%w: federation is %s, want %s", ErrInvalidRootDocument, d.Federation,
			held.Federation)
	case d.Version != held.Version+1:
		return fmt.Errorf("%w: version is %d, but version %d must be followed by version "+
			"%d", ErrInvalidRootDocument, d.Version,
			held.Version,
			held.Version+1)
	}
	if n := d.countSigners(held.RootKeys()); n < held.RootThreshold() {
		return fmt.Errorf("%w: version %d has too few signatures by root keys of version %d: %d of %d required",
			ErrInvalidRootDocument,
			d.Version, held.Version, n, held.RootThreshold())
	}
	return nil
}

// RootPin is a truncated SHA-256 of the root public key. With several root keys, it is the truncated SHA-256 of all
// keys and the threshold. An operator copies the pin to a device, which then recognises the root keys.
type RootPin [16]byte

// RootPin returns the pin of a single root key.
func (k SigningPublicKey) RootPin() RootPin {
	sum := sha256.Sum256(k[:])
	return RootPin(sum[:])
}

// RootPin returns the pin of the document's root key or, with a RootQuorum, of all root keys and the threshold.
func (d *RootDocument) RootPin() RootPin {
	if d.RootQuorum.Threshold == 0 {
		return d.RootKey.RootPin()
	}
	w := writer{append([]byte("fedmesh/v2/roots\x00"), d.RootQuorum.Threshold)}
	w.signingKeys(d.RootKeys())
	sum := sha256.Sum256(w.encoded)
	return RootPin(sum[:])
}
