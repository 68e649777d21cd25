package wire

import (
	"crypto/ed25519"
	"errors"
)

// RenewalRefusalReason tells why a device does not get another key or certificate. It is a metric's label.
type RenewalRefusalReason uint8

// The refusals.
const (
	// The new key is in the list under another device's name, or is no key.
	RenewalKeyOfOtherDevice  RenewalRefusalReason = iota + 1
	RenewalDeviceRevoked                          // the root document revokes the device
	RenewalNoAuthority                            // the coordinator signs no certificates
	RenewalStorageFailed                          // it could not be stored; ask again
	lastRenewalRefusalReason = RenewalStorageFailed
)

// String returns the refusal's name, as metrics and logs show it.
func (x RenewalRefusalReason) String() string {
	return enumName(uint8(x), "other_device", "revoked", "no_authority", "failed")
}

// RenewalRefusalReasons returns all refusals, for closed label sets.
func RenewalRefusalReasons() []RenewalRefusalReason { return allEnumValues(lastRenewalRefusalReason) }

// CredentialRenewalRequest asks the coordinator for another key in the list, for a certificate, or for both. Its
// envelope is signed with Key.
type CredentialRenewalRequest struct {
	NewKey    SigningPublicKey // the device's, from now on
	ListedKey SigningPublicKey // the one in the list, in whose place Key comes; zero = it is Key
	TLSKey    *TLSPublicKey    // of the certificate that is wanted; nil = none

	// ListedKeySignature and TLSKeySignature sign SignedText with the keys of which Before and TLS are the public part.
	ListedKeySignature Signature
	TLSKeySignature    []byte // ECDSA over its SHA-256, in ASN.1
}

// SignedText returns what the other keys of a request sign.
func (m *CredentialRenewalRequest) SignedText(federation FederationName, agent AgentID) []byte {
	w := writer{[]byte("fedmesh/v2/rekey\x00")}
	w.str(string(federation))
	w.str(string(agent))
	w.renewalRequestFields(m)
	return w.encoded
}

func (w *writer) renewalRequestFields(m *CredentialRenewalRequest) {
	w.encoded = append(w.encoded, m.NewKey[:]...)
	w.encoded = append(w.encoded, m.ListedKey[:]...)
	if m.TLSKey == nil {
		w.bytes(nil)
	} else {
		w.bytes(m.TLSKey[:])
	}
}

// SignWithListedKey has the key in the list vouch for the one that comes in its place.
func (m *CredentialRenewalRequest) SignWithListedKey(federation FederationName, agent AgentID,
	before ed25519.PrivateKey) {
	m.ListedKey = SigningPublicKeyOf(before)
	m.ListedKeySignature = Signature(ed25519.Sign(before, m.SignedText(federation, agent)))
}

// IsVouchedByListedKey reports whether the key in the list is the request's own, or vouches for that.
func (m *CredentialRenewalRequest) IsVouchedByListedKey(listed SigningPublicKey, federation FederationName,
	agent AgentID) bool {
	return m.NewKey == listed || m.ListedKey == listed && m.ListedKey != (SigningPublicKey{}) &&
		ed25519.Verify(listed.Ed25519(), m.SignedText(federation, agent), m.ListedKeySignature[:])
}

// Body returns the message's encoding.
func (m *CredentialRenewalRequest) Body() []byte {
	var w writer
	w.renewalRequestFields(m)
	w.encoded = append(w.encoded, m.ListedKeySignature[:]...)
	w.bytes(m.TLSKeySignature)
	return w.encoded
}

// DecodeCredentialRenewalRequest reads the body of a TypeRenewalRequest envelope. Its signatures are not looked at.
func DecodeCredentialRenewalRequest(body []byte) (CredentialRenewalRequest, error) {
	r := reader{unread: body}
	var m CredentialRenewalRequest
	copy(m.NewKey[:], r.takeBytes(len(m.NewKey)))
	copy(m.ListedKey[:], r.takeBytes(len(m.ListedKey)))
	switch key := r.bytes("key of the certificate", len(m.TLSKey)); {
	case len(key) == len(m.TLSKey):
		m.TLSKey = (*TLSPublicKey)(key)
	case len(key) > 0:
		r.failf("the key of the certificate has %d bytes, not %d", len(key), len(m.TLSKey))
	}
	copy(m.ListedKeySignature[:], r.takeBytes(len(m.ListedKeySignature)))
	m.TLSKeySignature = r.bytes("signature", maxECDSASignature)
	switch same := m.ListedKey == (SigningPublicKey{}); {
	case r.err != nil:
	case same && m.TLSKey == nil, m.ListedKey == m.NewKey:
		r.fail(errors.New("nothing is asked for"))
	case same != (m.ListedKeySignature == (Signature{})), (m.TLSKey == nil) != (len(m.TLSKeySignature) == 0):
		r.fail(errors.New("a key without its signature, or a signature without its key"))
	}
	return m, r.finish("renew")
}

// CredentialRenewalAnswer answers a Renew.
type CredentialRenewalAnswer struct {
	RequestDigest Digest               // of the envelope that it answers
	RefusalReason RenewalRefusalReason // 0 = what was asked for is done
	Certificate   []byte               // in DER; empty if none was asked for
}

// Body returns the message's encoding.
func (m *CredentialRenewalAnswer) Body() []byte {
	var w writer
	w.digest(m.RequestDigest)
	w.u8(uint8(m.RefusalReason))
	w.bytes(m.Certificate)
	return w.encoded
}

// DecodeCredentialRenewalAnswer reads the body of a TypeRenewalAnswer envelope.
func DecodeCredentialRenewalAnswer(body []byte) (CredentialRenewalAnswer, error) {
	r := reader{unread: body}
	m := CredentialRenewalAnswer{RequestDigest: r.digest(),
		RefusalReason: RenewalRefusalReason(r.optionalEnum("refusal", uint8(lastRenewalRefusalReason))),
		Certificate:   r.bytes("certificate", maxCertificate)}
	if r.err == nil && m.RefusalReason != 0 && len(m.Certificate) > 0 {
		r.fail(errors.New("a refusal with a certificate"))
	}
	return m, r.finish("renewed")
}
