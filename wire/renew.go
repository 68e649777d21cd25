package wire

import (
	"crypto/ed25519"
	"errors"
)

// RenewRefusal tells why a device does not get another key or certificate. It is a metric's label.
type RenewRefusal uint8

// The refusals.
const (
	RenewOther     RenewRefusal = iota + 1 // the new key is in the list under another device's name, or is no key
	RenewRevoked                           // the root document revokes the device
	RenewAuthority                         // the coordinator signs no certificates
	RenewFailed                            // it could not be stored; ask again
	lastRenew      = RenewFailed
)

// String returns the refusal's name, as metrics and logs show it.
func (x RenewRefusal) String() string {
	return enumName(uint8(x), "other_device", "revoked", "no_authority", "failed")
}

// RenewRefusals returns all refusals, for closed label sets.
func RenewRefusals() []RenewRefusal { return enumAll(lastRenew) }

// Renew asks the coordinator for another key in the list, for a certificate, or for both. Its envelope is signed with
// Key.
type Renew struct {
	Key       SignKey // the device's, from now on
	ListedKey SignKey // the one in the list, in whose place Key comes; zero = it is Key
	TLS       *TLSKey // of the certificate that is wanted; nil = none

	// ByBefore and ByTLS sign RenewText with the keys of which Before and TLS are the public part.
	ByBefore     Signature
	TLSSignature []byte // ECDSA over its SHA-256, in ASN.1
}

// SignedText returns what the other keys of a request sign.
func (m *Renew) SignedText(federation Federation, agent AgentID) []byte {
	w := writer{[]byte("fedmesh/v2/rekey\x00")}
	w.str(string(federation))
	w.str(string(agent))
	w.renewed(m)
	return w.b
}

func (w *writer) renewed(m *Renew) {
	w.b = append(w.b, m.Key[:]...)
	w.b = append(w.b, m.ListedKey[:]...)
	if m.TLS == nil {
		w.bytes(nil)
	} else {
		w.bytes(m.TLS[:])
	}
}

// SignWithListedKey has the key in the list vouch for the one that comes in its place.
func (m *Renew) SignWithListedKey(federation Federation, agent AgentID, before ed25519.PrivateKey) {
	m.ListedKey = SignKeyOf(before)
	m.ByBefore = Signature(ed25519.Sign(before, m.SignedText(federation, agent)))
}

// VouchedBy reports whether the key in the list is the request's own, or vouches for that.
func (m *Renew) VouchedBy(listed SignKey, federation Federation, agent AgentID) bool {
	return m.Key == listed || m.ListedKey == listed && m.ListedKey != (SignKey{}) &&
		ed25519.Verify(listed.Ed25519(), m.SignedText(federation, agent), m.ByBefore[:])
}

// Body returns the message's encoding.
func (m *Renew) Body() []byte {
	var w writer
	w.renewed(m)
	w.b = append(w.b, m.ByBefore[:]...)
	w.bytes(m.TLSSignature)
	return w.b
}

// DecodeRenew reads the body of a TypeRenew envelope. Its signatures are not looked at.
func DecodeRenew(body []byte) (Renew, error) {
	r := reader{b: body}
	var m Renew
	copy(m.Key[:], r.take(len(m.Key)))
	copy(m.ListedKey[:], r.take(len(m.ListedKey)))
	switch key := r.bytes("key of the certificate", len(m.TLS)); {
	case len(key) == len(m.TLS):
		m.TLS = (*TLSKey)(key)
	case len(key) > 0:
		r.failf("the key of the certificate has %d bytes, not %d", len(key), len(m.TLS))
	}
	copy(m.ByBefore[:], r.take(len(m.ByBefore)))
	m.TLSSignature = r.bytes("signature", maxECDSA)
	switch same := m.ListedKey == (SignKey{}); {
	case r.err != nil:
	case same && m.TLS == nil, m.ListedKey == m.Key:
		r.fail(errors.New("nothing is asked for"))
	case same != (m.ByBefore == (Signature{})), (m.TLS == nil) != (len(m.TLSSignature) == 0):
		r.fail(errors.New("a key without its signature, or a signature without its key"))
	}
	return m, r.finish("renew")
}

// Renewed answers a Renew.
type Renewed struct {
	RequestDigest Digest       // of the envelope that it answers
	Refused       RenewRefusal // 0 = what was asked for is done
	Certificate   []byte       // in DER; empty if none was asked for
}

// Body returns the message's encoding.
func (m *Renewed) Body() []byte {
	var w writer
	w.digest(m.RequestDigest)
	w.u8(uint8(m.Refused))
	w.bytes(m.Certificate)
	return w.b
}

// DecodeRenewed reads the body of a TypeRenewed envelope.
func DecodeRenewed(body []byte) (Renewed, error) {
	r := reader{b: body}
	m := Renewed{RequestDigest: r.digest(), Refused: RenewRefusal(r.optionalEnum("refusal", uint8(lastRenew))),
		Certificate: r.bytes("certificate", maxCertificate)}
	if r.err == nil && m.Refused != 0 && len(m.Certificate) > 0 {
		r.fail(errors.New("a refusal with a certificate"))
	}
	return m, r.finish("renewed")
}
