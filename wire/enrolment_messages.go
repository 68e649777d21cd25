package wire

import "fmt"

// MaxEnrolmentRequestBytes and MaxEnrolmentAnswerBytes bound the two messages of a join, in bytes.
const (
	MaxEnrolmentRequestBytes = 4 << 10
	MaxEnrolmentAnswerBytes  = 64 << 10
)

const (
	maxECDSASignature = 80 // bytes of a signature in ASN.1
	maxCertificate    = 8 << 10
	maxSettings       = 64
	maxSettingName    = 64
	maxSettingValue   = 1 << 10
)

// TLSPublicKey is a public key of the curve P-256, uncompressed.
type TLSPublicKey [65]byte

// EnrolmentRequest asks the coordinator to take a device in. It travels over TLS, to a listener of the coordinator's.
type EnrolmentRequest struct {
	Agent     AgentID
	DeviceKey SigningPublicKey // of the device
	TLSKey    TLSPublicKey     // of the client certificate that it asks for

	// TokenSignature, DeviceKeySignature and TLSKeySignature sign SignedText: by the token's key and by those of which
	// DeviceKey and TLSKey are the public part.
	TokenSignature, DeviceKeySignature Signature
	TLSKeySignature                    []byte // ECDSA over its SHA-256, in ASN.1
}

// SignedText returns what a join signs. binding is of the TLS connection, so that nobody can pass a join on over
// another one: 32 bytes exported with EnrolmentExporterLabel, without a context (RFC 8446 7.5).
func (j *EnrolmentRequest) SignedText(binding []byte) []byte {
	w := writer{[]byte("fedmesh/v2/join\x00")}
	w.encoded = append(w.encoded, binding...)
	w.enrolmentRequestFields(j)
	return w.encoded
}

// EnrolmentExporterLabel is the label of the exported keying material.
const EnrolmentExporterLabel = "EXPORTER-fedmesh-v2-join"

func (w *writer) enrolmentRequestFields(j *EnrolmentRequest) {
	w.str(string(j.Agent))
	w.encoded = append(w.encoded, j.DeviceKey[:]...)
	w.encoded = append(w.encoded, j.TLSKey[:]...)
}

// Bytes returns the message's encoding.
func (j *EnrolmentRequest) Bytes() []byte {
	var w writer
	w.enrolmentRequestFields(j)
	w.encoded = append(w.encoded, j.TokenSignature[:]...)
	w.encoded = append(w.encoded, j.DeviceKeySignature[:]...)
	w.bytes(j.TLSKeySignature)
	return w.encoded
}

// DecodeEnrolmentRequest reads a join. Its signatures are not looked at.
func DecodeEnrolmentRequest(p []byte) (EnrolmentRequest, error) {
	r := reader{unread: p}
	j := EnrolmentRequest{Agent: AgentID(r.str("agent", MaxAgentID))}
	copy(j.DeviceKey[:], r.takeBytes(len(j.DeviceKey)))
	copy(j.TLSKey[:], r.takeBytes(len(j.TLSKey)))
	copy(j.TokenSignature[:], r.takeBytes(len(j.TokenSignature)))
	copy(j.DeviceKeySignature[:], r.takeBytes(len(j.DeviceKeySignature)))
	j.TLSKeySignature = r.bytes("signature", maxECDSASignature)
	if r.err == nil {
		r.fail(j.Agent.ValidateNonCoordinator())
	}
	return j, r.finish("join")
}

// EnrolmentRefusalReason tells why a device was not taken in. It is a metric's label.
type EnrolmentRefusalReason uint8

// The refusals. A stranger only gets the first two: the others tell whoever has the token.
const (
	EnrolmentUnknownToken      EnrolmentRefusalReason = iota + 1 // there is no such token: never, or no more
	EnrolmentTooManyTries                                        // too many wrong tries from this address
	EnrolmentTokenUsed                                           // another key has used the token
	EnrolmentOtherKeyListed                                      // the device is in the list with another key
	EnrolmentKeyOfOtherDevice                                    // the key is in the list under another device's name
	EnrolmentDeviceRevoked                                       // the root document revokes the device
	EnrolmentStorageFailed                                       // the coordinator could not store it; ask again
	lastEnrolmentRefusalReason = EnrolmentStorageFailed
)

// String returns the refusal's name, as metrics and logs show it.
func (x EnrolmentRefusalReason) String() string {
	return enumName(uint8(x), "unknown_token", "too_many_tries", "used_token", "listed", "other_device", "revoked",
		"failed")
}

// EnrolmentRefusalReasons returns all refusals, for closed label sets.
func EnrolmentRefusalReasons() []EnrolmentRefusalReason {
	return allEnumValues(lastEnrolmentRefusalReason)
}

// EnrolmentAnswer answers a join: with a refusal, or with all that a device needs.
type EnrolmentAnswer struct {
	RefusalReason EnrolmentRefusalReason // 0 = the device is taken in
	RootDocument  []byte                 // the root document
	Certificate   []byte                 // of the client, in DER
	CACertificate []byte                 // the certificate of the authority that has signed it, in DER
	Settings      []AgentSetting         // keys of agentd.yaml that all devices share; ascending
}

// AgentSetting is a key of a configuration file with its value, as on a command line.
type AgentSetting struct{ Name, Value string }

// Bytes returns the message's encoding.
func (a *EnrolmentAnswer) Bytes() []byte {
	var w writer
	w.u8(uint8(a.RefusalReason))
	if a.RefusalReason != 0 {
		return w.encoded
	}
	w.bytes(a.RootDocument)
	w.bytes(a.Certificate)
	w.bytes(a.CACertificate)
	w.u32(uint32(len(a.Settings)))
	for _, s := range a.Settings {
		w.str(s.Name)
		w.str(s.Value)
	}
	return w.encoded
}

// DecodeEnrolmentAnswer reads the answer to a join.
func DecodeEnrolmentAnswer(p []byte) (EnrolmentAnswer, error) {
	r := reader{unread: p}
	a := EnrolmentAnswer{RefusalReason: EnrolmentRefusalReason(r.optionalEnum("refusal",
		uint8(lastEnrolmentRefusalReason)))}
	if a.RefusalReason != 0 {
		return a, r.finish("admission")
	}
	a.RootDocument, a.Certificate = r.bytes("root document", MaxRootDocumentBytes), r.bytes("certificate",
		maxCertificate)
	a.CACertificate = r.bytes("authority", maxCertificate)
	for range r.listLength("settings", maxSettings, 4) {
		s := AgentSetting{r.str("setting", maxSettingName), r.str("setting's value", maxSettingValue)}
		if n := len(a.Settings); r.err == nil && n > 0 && a.Settings[n-1].Name >= s.Name {
			r.fail(fmt.Errorf("setting %q after %q: they must ascend", s.Name, a.Settings[n-1].Name))
		}
		a.Settings = append(a.Settings, s)
	}
	return a, r.finish("admission")
}
