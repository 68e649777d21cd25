package wire

import "crypto/ed25519"

// SignatureScheme signs and verifies envelopes. The daemons use [Ed25519]. The simulator in lab/world uses another
// scheme, because Ed25519 signatures would be more than half of the simulator's work.
type SignatureScheme interface {
	// Sign returns the signature of a message. It has [ed25519.SignatureSize] bytes.
	Sign(key ed25519.PrivateKey, message []byte) []byte
	Verify(key ed25519.PublicKey, message, signature []byte) bool
}

// Ed25519 is the signature scheme of RFC 8032.
type Ed25519 struct{}

// Sign implements SignatureScheme.
func (Ed25519) Sign(key ed25519.PrivateKey, message []byte) []byte { return ed25519.Sign(key, message) }

// Verify implements SignatureScheme.
func (Ed25519) Verify(key ed25519.PublicKey, message, signature []byte) bool {
	return len(key) == ed25519.PublicKeySize && ed25519.Verify(key, message, signature)
}
