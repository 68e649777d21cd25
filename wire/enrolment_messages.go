package wire

import "fmt"

// MaxEnrolmentRequestBytes and MaxEnrolmentAnswerBytes are the maximum sizes of the two enrolment messages.
const (
	MaxEnrolmentRequestBytes = 4 << 10
	MaxEnrolmentAnswerBytes  = 64 << 10
)

const (
	maxECDSASignature = 80 // maximum length in bytes of an ASN.1 signature
	maxCertificate    = 8 << 10
	maxSettings       = 64
	maxSettingName    = 64
	maxSettingValue   = 1 << 10
)

// TLSPublicKey is an uncompressed public key on the curve P-256.
type TLSPublicKey [65]byte

// EnrolmentRequest asks the coordinator to enrol a device. It is sent over TLS to the coordinator's enrolment listener.
type EnrolmentRequest struct {
	Agent     AgentID
	DeviceKey SigningPublicKey
	TLSKey    TLSPublicKey // public key for which the client certificate is requested

	// TokenSignature and DeviceKeySignature are signatures of SignedText by the token's key and the device key.
	TokenSignature, DeviceKeySignature Signature
	TLSKeySignature                    []byte // ECDSA signature of SHA-256(SignedText) by TLSKey, in ASN.1
}

// SignedText returns the text that the signatures cover. The parameter binding consists of 32 bytes that are exported
// from the TLS connection with EnrolmentExporterLabel, without a context (RFC 8446 7.5). It prevents an attacker from
// relaying the request over another connection.
func (j *EnrolmentRequest) SignedText(binding []byte) []byte {
	w := writer{[]byte("fedmesh/v2/join\x00")}
	w.encoded = append(w.encoded, binding...)
	w.enrolmentRequestFields(j)
	return w.encoded
}

// EnrolmentExporterLabel is the TLS exporter label of the channel binding.
const EnrolmentExporterLabel = "EXPORTER-fedmesh-v2-join"

func (w *writer) enrolmentRequestFields(j *EnrolmentRequest) {
	w.str(string(j.Agent))
	w.encoded = append(w.encoded, j.DeviceKey[:]...)
	w.encoded = append(w.encoded, j.TLSKey[:]...)
}

// Bytes returns the encoded message.
func (j *EnrolmentRequest) Bytes() []byte {
	var w writer
	w.enrolmentRequestFields(j)
	w.encoded = append(w.encoded, j.TokenSignature[:]...)
	w.encoded = append(w.encoded, j.DeviceKeySignature[:]...)
	w.bytes(j.TLSKeySignature)
	return w.encoded
}

// DecodeEnrolmentRequest decodes an enrolment request without verifying its signatures.
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
	return j, r.finish("enrolment request")
}

// EnrolmentRefusalReason is the reason why a device was not enrolled. Metrics use its name as a label value.
type EnrolmentRefusalReason uint8

// Reasons for refusing enrolment. A client without a valid token receives only the first two.
const (
	EnrolmentUnknownToken EnrolmentRefusalReason = iota + 1 // the token is unknown, revoked or expired
	EnrolmentTooManyTries                                   // too many failed attempts from this address
	EnrolmentTokenUsed
	EnrolmentOtherKeyListed   // the device is already listed with another key
	EnrolmentKeyOfOtherDevice // the key is listed for another device
	EnrolmentDeviceRevoked    // the device is revoked by the root document
	EnrolmentStorageFailed
	lastEnrolmentRefusalReason = EnrolmentStorageFailed
)

// String returns the name of the reason in metrics and logs.
func (x EnrolmentRefusalReason) String() string {
	return enumName(uint8(x), "unknown_token", "too_many_tries", "used_token", "listed", "other_device", "revoked",
		"failed")
}

// EnrolmentRefusalReasons returns all values of EnrolmentRefusalReason.
func EnrolmentRefusalReasons() []EnrolmentRefusalReason {
	return allEnumValues(lastEnrolmentRefusalReason)
}

// EnrolmentAnswer is the answer to an enrolment request: a refusal, or the data that a device needs.
type EnrolmentAnswer struct {
	RefusalReason EnrolmentRefusalReason // 0 means that the device is enrolled
	RootDocument  []byte
	Certificate   []byte         // client certificate in DER
	CACertificate []byte         // certificate of the CA that signed Certificate, in DER
	Settings      []AgentSetting // settings for agentd.yaml that are common to all devices, in ascending order of name
}

// AgentSetting is a configuration key with its value, in command-line syntax.
type AgentSetting struct{ Name, Value string }

// Bytes returns the encoded message.
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

// DecodeEnrolmentAnswer decodes the answer to an enrolment request.
func DecodeEnrolmentAnswer(p []byte) (EnrolmentAnswer, error) {
	r := reader{unread: p}
	a := EnrolmentAnswer{RefusalReason: EnrolmentRefusalReason(r.optionalEnum("refusal",
		uint8(lastEnrolmentRefusalReason)))}
	if a.RefusalReason != 0 {
		return a, r.finish("enrolment answer")
	}
	a.RootDocument, a.Certificate = r.bytes("root document", MaxRootDocumentBytes), r.bytes("certificate",
		maxCertificate)
	a.CACertificate = r.bytes("CA certificate", maxCertificate)
	for range r.listLength("settings", maxSettings, 4) {
		s := AgentSetting{r.str("setting", maxSettingName), r.str("setting value", maxSettingValue)}
		if n := len(a.Settings); r.err == nil && n > 0 && a.Settings[n-1].Name >= s.Name {
			r.fail(fmt.Errorf("setting %q is listed after %q: settings must be in ascending order",
				s.Name, a.Settings[n-1].Name))
		}
		a.Settings = append(a.Settings, s)
	}
	return a, r.finish("enrolment answer")
}
