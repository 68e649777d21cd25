package wire

import "crypto/ed25519"

// SignatureScheme is how envelopes are signed: by [Ed25519] in the programs. Package lab/world, where signatures would
// be more than half of the work, has another one.
type SignatureScheme interface {
	// Sign returns the signature of a message, of [ed25519.SignatureSize] bytes.
	Sign(key ed25519.PrivateKey, message []byte) []byte
	Verify(key ed25519.PublicKey, message, signature []byte) bool
}

// Ed25519 is RFC 8032.
type Ed25519 struct{}

// Sign implements Signatures.
func (Ed25519) Sign(key ed25519.PrivateKey, message []byte) []byte { return ed25519.Sign(key, message) }

// Verify implements Signatures.
func (Ed25519) Verify(key ed25519.PublicKey, message, signature []byte) bool {
	return len(key) == ed25519.PublicKeySize && ed25519.Verify(key, message, signature)
}
