package wire

import (
	"crypto/ed25519"
	"errors"
)

// RenewalRefusalReason is the reason why a device does not get a new key or certificate. Metrics use its name as a
// label value.
type RenewalRefusalReason uint8

// Reasons for refusing a renewal.
const (
	// RenewalKeyOfOtherDevice means that the new key is either invalid or belongs to another device.
	RenewalKeyOfOtherDevice  RenewalRefusalReason = iota + 1
	RenewalDeviceRevoked                          // the device is revoked by the root document
	RenewalNoAuthority                            // the coordinator has no certificate authority
	RenewalStorageFailed                          // the coordinator could not store the renewal; the device may retry
	lastRenewalRefusalReason = RenewalStorageFailed
)

// String returns the name of the reason in metrics and logs.
func (x RenewalRefusalReason) String() string {
	return enumName(uint8(x), "other_device", "revoked", "no_authority", "failed")
}

// RenewalRefusalReasons returns all values of RenewalRefusalReason.
func RenewalRefusalReasons() []RenewalRefusalReason { return allEnumValues(lastRenewalRefusalReason) }

// CredentialRenewalRequest asks the coordinator to add a new key of the device to the list of agents, to issue a TLS
// certificate, or both. The envelope of the request is signed with NewKey.
type CredentialRenewalRequest struct {
	NewKey SigningPublicKey // public key that the device will use
	// key in the list of agents, which NewKey replaces; zero means that NewKey is already in the list
	ListedKey SigningPublicKey
	TLSKey    *TLSPublicKey // public key for the requested certificate; nil means that no certificate is requested

	// ListedKeySignature is the signature of SignedText with the key in the list of agents.
	ListedKeySignature Signature
	TLSKeySignature    []byte // ECDSA signature of SHA-256(SignedText) with TLSKey, in ASN.1
}

// SignedText returns the text that must be signed with the key in the list of agents and with the TLS key.
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

// SignWithListedKey signs the request with the key that is currently in the list of agents, to authorise the new key.
func (m *CredentialRenewalRequest) SignWithListedKey(federation FederationName, agent AgentID,
	before ed25519.PrivateKey) {
	m.ListedKey = SigningPublicKeyOf(before)
	m.ListedKeySignature = Signature(ed25519.Sign(before, m.SignedText(federation, agent)))
}

// IsVouchedByListedKey reports whether NewKey equals the listed key (the key in the list of agents) or is authorised by
// a valid signature of the listed key.
func (m *CredentialRenewalRequest) IsVouchedByListedKey(listed SigningPublicKey, federation FederationName,
	agent AgentID) bool {
	return m.NewKey == listed || m.ListedKey == listed && m.ListedKey != (SigningPublicKey{}) &&
		ed25519.Verify(listed.Ed25519(), m.SignedText(federation, agent), m.ListedKeySignature[:])
}

// Body returns the encoded message.
func (m *CredentialRenewalRequest) Body() []byte {
	var w writer
	w.renewalRequestFields(m)
	w.encoded = append(w.encoded, m.ListedKeySignature[:]...)
	w.bytes(m.TLSKeySignature)
	return w.encoded
}

// DecodeCredentialRenewalRequest decodes the body of a TypeRenewalRequest envelope without verifying its signatures.
func DecodeCredentialRenewalRequest(body []byte) (CredentialRenewalRequest, error) {
	r := reader{unread: body}
	var m CredentialRenewalRequest
	copy(m.NewKey[:], r.takeBytes(len(m.NewKey)))
	copy(m.ListedKey[:], r.takeBytes(len(m.ListedKey)))
	switch key := r.bytes("certificate key", len(m.TLSKey)); {
	case len(key) == len(m.TLSKey):
		m.TLSKey = (*TLSPublicKey)(key)
	case len(key) > 0:
		r.failf("certificate key has %d bytes instead of %d", len(key), len(m.TLSKey))
	}
	copy(m.ListedKeySignature[:], r.takeBytes(len(m.ListedKeySignature)))
	m.TLSKeySignature = r.bytes("signature", maxECDSASignature)
	switch same := m.ListedKey == (SigningPublicKey{}); {
	case r.err != nil:
	case same && m.TLSKey == nil, m.ListedKey == m.NewKey:
		r.fail(errors.New("request contains neither a new key nor a TLS key"))
	case same != (m.ListedKeySignature == (Signature{})), (m.TLSKey == nil) != (len(m.TLSKeySignature) == 0):
		r.fail(errors.New("every key must have a signature, and every signature a key"))
	}
	return m, r.finish("renew")
}

// CredentialRenewalAnswer is the answer to a CredentialRenewalRequest.
type CredentialRenewalAnswer struct {
	RequestDigest Digest               // digest of the envelope of the request
	RefusalReason RenewalRefusalReason // 0 means that the request was granted
	Certificate   []byte               // certificate in DER; empty if none was requested
}

// Body returns the encoded message.
func (m *CredentialRenewalAnswer) Body() []byte {
	var w writer
	w.digest(m.RequestDigest)
	w.u8(uint8(m.RefusalReason))
	w.bytes(m.Certificate)
	return w.encoded
}

// DecodeCredentialRenewalAnswer decodes the body of a TypeRenewalAnswer envelope.
func DecodeCredentialRenewalAnswer(body []byte) (CredentialRenewalAnswer, error) {
	r := reader{unread: body}
	m := CredentialRenewalAnswer{RequestDigest: r.digest(),
		RefusalReason: RenewalRefusalReason(r.optionalEnum("refusal", uint8(lastRenewalRefusalReason))),
		Certificate:   r.bytes("certificate", maxCertificate)}
	if r.err == nil && m.RefusalReason != 0 && len(m.Certificate) > 0 {
		r.fail(errors.New("a refusal must not contain a certificate"))
	}
	return m, r.finish("renewed")
}
