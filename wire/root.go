package wire

import (
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
)

const (
	// MaxRevoked bounds the devices that a root document revokes.
	MaxRevoked = 256
	// MaxRoot bounds a root document, in bytes: it rides inside a certificate.
	MaxRoot = 16 << 10
)

// SignKey is an Ed25519 public key.
type SignKey [ed25519.PublicKeySize]byte

// Ed25519 returns the key in the form of its package.
func (k SignKey) Ed25519() ed25519.PublicKey { return k[:] }

// SignKeyOf returns the public part of a private key.
func SignKeyOf(key ed25519.PrivateKey) SignKey { return SignKey(key[ed25519.SeedSize:]) }

// Signed is an Ed25519 signature.
type Signed [ed25519.SignatureSize]byte

// RootDocument says whose keys count in a federation. The root key signs nothing else, so it can be kept where no
// network reaches.
type RootDocument struct {
	Federation  Federation
	Version     Root
	Key         SignKey   // of the root
	Coordinator SignKey   // whose announcements count
	CA          Digest    // of the certificate of the federation's authority, in DER; zero = none
	Revoked     []AgentID // may take part no more; ascending
	Extra       Extra

	Before Signed // by the root key of the version before; zero in FirstRoot
	By     Signed // by Key
}

// ErrRoot reports a root document that does not count.
var ErrRoot = errors.New("the root document does not count")

// Sign signs the document. before is the root key of the version before, which may be the same; nil for FirstRoot.
func (d *RootDocument) Sign(key, before ed25519.PrivateKey) {
	d.Key = SignKeyOf(key)
	text := d.signed()
	d.By, d.Before = Signed(ed25519.Sign(key, text)), Signed{}
	if before != nil {
		d.Before = Signed(ed25519.Sign(before, text))
	}
}

// signed returns what is signed.
func (d *RootDocument) signed() []byte { return rootText(d.fields()) }

func rootText(fields []byte) []byte { return append([]byte("fedmesh/v2/root\x00"), fields...) }

// fields is the encoding up to the signatures.
func (d *RootDocument) fields() []byte {
	var w writer
	w.str(string(d.Federation))
	w.u32(uint32(d.Version))
	w.b = append(w.b, d.Key[:]...)
	w.b = append(w.b, d.Coordinator[:]...)
	w.digest(d.CA)
	w.u32(uint32(len(d.Revoked)))
	for _, id := range d.Revoked {
		w.str(string(id))
	}
	w.sections(nil, d.Extra)
	return w.b
}

// Bytes returns the document's encoding.
func (d *RootDocument) Bytes() []byte {
	w := writer{d.fields()}
	w.b = append(w.b, d.Before[:]...)
	w.b = append(w.b, d.By[:]...)
	return w.b
}

// DecodeRoot reads a root document, and does not look at its signatures.
func DecodeRoot(p []byte) (RootDocument, error) {
	if len(p) > MaxRoot {
		return RootDocument{}, fmt.Errorf("root document: %d bytes, more than %d", len(p), MaxRoot)
	}
	r := reader{b: p}
	d := RootDocument{Federation: Federation(r.str("federation", MaxFederation)), Version: Root(r.u32()),
		Key: SignKey(r.digest()), Coordinator: SignKey(r.digest()), CA: r.digest()}
	for range r.count("revoked devices", MaxRevoked, 3) {
		id := AgentID(r.str("revoked device", MaxAgentID))
		if n := len(d.Revoked); r.err == nil && n > 0 && d.Revoked[n-1] >= id {
			r.failf("device %q after %q: they must ascend", id, d.Revoked[n-1])
		}
		if r.err == nil {
			r.fail(id.ValidateAgent())
		}
		d.Revoked = append(d.Revoked, id)
	}
	d.Extra = r.sections(nil)
	copy(d.Before[:], r.take(len(d.Before)))
	copy(d.By[:], r.take(len(d.By)))
	if r.err == nil {
		r.fail(d.Federation.Validate())
	}
	if r.err == nil && d.Version < FirstRoot {
		r.failf("its version is 0, they count from 1")
	}
	return d, r.done("root document")
}

// OpenRoot reads a root document that has signed itself, and asks for nothing that this build does not know. Whether
// its root key is the right one is for the caller: by its Pin, or by the version before.
func OpenRoot(p []byte) (RootDocument, error) {
	d, err := DecodeRoot(p)
	if err != nil {
		return d, err
	}
	if !ed25519.Verify(d.Key[:], rootText(p[:len(p)-2*len(d.By)]), d.By[:]) {
		return d, fmt.Errorf("%w: it is not signed by the root key that it names", ErrRoot)
	}
	if err := d.Extra.Unsupported(); err != nil {
		return d, fmt.Errorf("root document: %w", err)
	}
	return d, nil
}

// Follows reports why the document, which OpenRoot has read, may not take the place of one that is held: it must have
// the next version, and the signature of the held root key.
func (d *RootDocument) Follows(held *RootDocument) error {
	switch {
	case d.Federation != held.Federation:
		return fmt.Errorf("%w: it is of the federation %s, not of %s", ErrRoot, d.Federation, held.Federation)
	case d.Version != held.Version+1:
		return fmt.Errorf("%w: it has version %d, after version %d comes %d", ErrRoot, d.Version, held.Version,
			held.Version+1)
	case !ed25519.Verify(held.Key[:], d.signed(), d.Before[:]):
		return fmt.Errorf("%w: version %d is not signed by the root key of version %d", ErrRoot, d.Version,
			held.Version)
	}
	return nil
}

// Pin is the begin of the SHA-256 of a root's public key: whoever has it from a person knows the root.
type Pin [16]byte

// Pin returns the pin of a root key.
func (k SignKey) Pin() Pin {
	sum := sha256.Sum256(k[:])
	return Pin(sum[:])
}
