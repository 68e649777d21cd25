package wire

import (
	"crypto/ed25519"
	"errors"
)

// RenewalRefusal tells why a device does not get another key or certificate. It is a metric's label.
type RenewalRefusal uint8

// The refusals.
const (
	RenewOther     RenewalRefusal = iota + 1 // the new key is in the list under another device's name, or is no key
	RenewRevoked                             // the root document revokes the device
	RenewAuthority                           // the coordinator signs no certificates
	RenewFailed                              // it could not be stored; ask again
	lastRenew      = RenewFailed
)

// String returns the refusal's name, as metrics and logs show it.
func (x RenewalRefusal) String() string {
	return enumName(uint8(x), "other_device", "revoked", "no_authority", "failed")
}

// RenewalRefusals returns all refusals, for closed label sets.
func RenewalRefusals() []RenewalRefusal { return allEnumValues(lastRenew) }

// RenewalRequest asks the coordinator for another key in the list, for a certificate, or for both. Its envelope is
// signed with Key.
type RenewalRequest struct {
	NewKey    SigningPublicKey // the device's, from now on
	ListedKey SigningPublicKey // the one in the list, in whose place Key comes; zero = it is Key
	TLS       *TLSKey          // of the certificate that is wanted; nil = none

	// ListedKeySignature and TLSSignature sign SignedText with the keys of which Before and TLS are the public part.
	ListedKeySignature Signature
	TLSSignature       []byte // ECDSA over its SHA-256, in ASN.1
}

// SignedText returns what the other keys of a request sign.
func (m *RenewalRequest) SignedText(federation Federation, agent AgentID) []byte {
	w := writer{[]byte("fedmesh/v2/rekey\x00")}
	w.str(string(federation))
	w.str(string(agent))
	w.renewalFields(m)
	return w.b
}

func (w *writer) renewalFields(m *RenewalRequest) {
	w.b = append(w.b, m.NewKey[:]...)
	w.b = append(w.b, m.ListedKey[:]...)
	if m.TLS == nil {
		w.bytes(nil)
	} else {
		w.bytes(m.TLS[:])
	}
}

// SignWithListedKey has the key in the list vouch for the one that comes in its place.
func (m *RenewalRequest) SignWithListedKey(federation Federation, agent AgentID, before ed25519.PrivateKey) {
	m.ListedKey = SigningPublicKeyOf(before)
	m.ListedKeySignature = Signature(ed25519.Sign(before, m.SignedText(federation, agent)))
}

// IsVouchedByListedKey reports whether the key in the list is the request's own, or vouches for that.
func (m *RenewalRequest) IsVouchedByListedKey(listed SigningPublicKey, federation Federation, agent AgentID) bool {
	return m.NewKey == listed || m.ListedKey == listed && m.ListedKey != (SigningPublicKey{}) &&
		ed25519.Verify(listed.Ed25519(), m.SignedText(federation, agent), m.ListedKeySignature[:])
}

// Body returns the message's encoding.
func (m *RenewalRequest) Body() []byte {
	var w writer
	w.renewalFields(m)
	w.b = append(w.b, m.ListedKeySignature[:]...)
	w.bytes(m.TLSSignature)
	return w.b
}

// DecodeRenewalRequest reads the body of a TypeRenew envelope. Its signatures are not looked at.
func DecodeRenewalRequest(body []byte) (RenewalRequest, error) {
	r := reader{b: body}
	var m RenewalRequest
	copy(m.NewKey[:], r.takeBytes(len(m.NewKey)))
	copy(m.ListedKey[:], r.takeBytes(len(m.ListedKey)))
	switch key := r.bytes("key of the certificate", len(m.TLS)); {
	case len(key) == len(m.TLS):
		m.TLS = (*TLSKey)(key)
	case len(key) > 0:
		r.failf("the key of the certificate has %d bytes, not %d", len(key), len(m.TLS))
	}
	copy(m.ListedKeySignature[:], r.takeBytes(len(m.ListedKeySignature)))
	m.TLSSignature = r.bytes("signature", maxECDSA)
	switch same := m.ListedKey == (SigningPublicKey{}); {
	case r.err != nil:
	case same && m.TLS == nil, m.ListedKey == m.NewKey:
		r.fail(errors.New("nothing is asked for"))
	case same != (m.ListedKeySignature == (Signature{})), (m.TLS == nil) != (len(m.TLSSignature) == 0):
		r.fail(errors.New("a key without its signature, or a signature without its key"))
	}
	return m, r.finish("renew")
}

// RenewalAnswer answers a Renew.
type RenewalAnswer struct {
	RequestDigest Digest         // of the envelope that it answers
	Refusal       RenewalRefusal // 0 = what was asked for is done
	Certificate   []byte         // in DER; empty if none was asked for
}

// Body returns the message's encoding.
func (m *RenewalAnswer) Body() []byte {
	var w writer
	w.digest(m.RequestDigest)
	w.u8(uint8(m.Refusal))
	w.bytes(m.Certificate)
	return w.b
}

// DecodeRenewalAnswer reads the body of a TypeRenewed envelope.
func DecodeRenewalAnswer(body []byte) (RenewalAnswer, error) {
	r := reader{b: body}
	m := RenewalAnswer{RequestDigest: r.digest(), Refusal: RenewalRefusal(r.optionalEnum("refusal", uint8(lastRenew))),
		Certificate: r.bytes("certificate", maxCertificate)}
	if r.err == nil && m.Refusal != 0 && len(m.Certificate) > 0 {
		r.fail(errors.New("a refusal with a certificate"))
	}
	return m, r.finish("renewed")
}
