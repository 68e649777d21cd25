package wire

import "fmt"

// MaxJoinRequest and MaxJoinAnswer bound the two messages of a join, in bytes.
const (
	MaxJoinRequest = 4 << 10
	MaxJoinAnswer  = 64 << 10
)

const (
	maxECDSA       = 80 // bytes of a signature in ASN.1
	maxCertificate = 8 << 10
	maxSettings    = 64
	maxSettingName = 64
	maxSetting     = 1 << 10
)

// TLSKey is a public key of the curve P-256, uncompressed.
type TLSKey [65]byte

// EnrolmentRequest asks the coordinator to take a device in. It travels over TLS, to a listener of the coordinator's.
type EnrolmentRequest struct {
	Agent     AgentID
	DeviceKey SigningPublicKey // of the device
	TLS       TLSKey           // of the client certificate that it asks for

	// TokenSignature, DeviceKeySignature and TLSSignature sign SignedText: by the token's key and by those of which Key
	// and TLS are the public part.
	TokenSignature, DeviceKeySignature Signature
	TLSSignature                       []byte // ECDSA over its SHA-256, in ASN.1
}

// SignedText returns what a join signs. binding is of the TLS connection, so that nobody can pass a join on over
// another one: 32 bytes exported with JoinLabel, without a context (RFC 8446 7.5).
func (j *EnrolmentRequest) SignedText(binding []byte) []byte {
	w := writer{[]byte("fedmesh/v2/join\x00")}
	w.b = append(w.b, binding...)
	w.enrolmentFields(j)
	return w.b
}

// JoinLabel is the label of the exported keying material.
const JoinLabel = "EXPORTER-fedmesh-v2-join"

func (w *writer) enrolmentFields(j *EnrolmentRequest) {
	w.str(string(j.Agent))
	w.b = append(w.b, j.DeviceKey[:]...)
	w.b = append(w.b, j.TLS[:]...)
}

// Bytes returns the message's encoding.
func (j *EnrolmentRequest) Bytes() []byte {
	var w writer
	w.enrolmentFields(j)
	w.b = append(w.b, j.TokenSignature[:]...)
	w.b = append(w.b, j.DeviceKeySignature[:]...)
	w.bytes(j.TLSSignature)
	return w.b
}

// DecodeEnrolmentRequest reads a join. Its signatures are not looked at.
func DecodeEnrolmentRequest(p []byte) (EnrolmentRequest, error) {
	r := reader{b: p}
	j := EnrolmentRequest{Agent: AgentID(r.str("agent", MaxAgentID))}
	copy(j.DeviceKey[:], r.takeBytes(len(j.DeviceKey)))
	copy(j.TLS[:], r.takeBytes(len(j.TLS)))
	copy(j.TokenSignature[:], r.takeBytes(len(j.TokenSignature)))
	copy(j.DeviceKeySignature[:], r.takeBytes(len(j.DeviceKeySignature)))
	j.TLSSignature = r.bytes("signature", maxECDSA)
	if r.err == nil {
		r.fail(j.Agent.ValidateAgent())
	}
	return j, r.finish("join")
}

// EnrolmentRefusal tells why a device was not taken in. It is a metric's label.
type EnrolmentRefusal uint8

// The refusals. A stranger only gets the first two: the others tell whoever has the token.
const (
	JoinUnknown EnrolmentRefusal = iota + 1 // there is no such token: never, or no more
	JoinTries                               // too many wrong tries from this address
	JoinUsed                                // another key has used the token
	JoinListed                              // the device is in the list with another key
	JoinOther                               // the key is in the list under another device's name
	JoinRevoked                             // the root document revokes the device
	JoinFailed                              // the coordinator could not store it; ask again
	lastJoin    = JoinFailed
)

// String returns the refusal's name, as metrics and logs show it.
func (x EnrolmentRefusal) String() string {
	return enumName(uint8(x), "unknown_token", "too_many_tries", "used_token", "listed", "other_device", "revoked",
		"failed")
}

// EnrolmentRefusals returns all refusals, for closed label sets.
func EnrolmentRefusals() []EnrolmentRefusal { return allEnumValues(lastJoin) }

// EnrolmentAnswer answers a join: with a refusal, or with all that a device needs.
type EnrolmentAnswer struct {
	Refusal     EnrolmentRefusal // 0 = the device is taken in
	Root        []byte           // the root document
	Certificate []byte           // of the client, in DER
	CA          []byte           // the certificate of the authority that has signed it, in DER
	Settings    []Setting        // keys of agentd.yaml that all devices share; ascending
}

// Setting is a key of a configuration file with its value, as on a command line.
type Setting struct{ Name, Value string }

// Bytes returns the message's encoding.
func (a *EnrolmentAnswer) Bytes() []byte {
	var w writer
	w.u8(uint8(a.Refusal))
	if a.Refusal != 0 {
		return w.b
	}
	w.bytes(a.Root)
	w.bytes(a.Certificate)
	w.bytes(a.CA)
	w.u32(uint32(len(a.Settings)))
	for _, s := range a.Settings {
		w.str(s.Name)
		w.str(s.Value)
	}
	return w.b
}

// DecodeEnrolmentAnswer reads the answer to a join.
func DecodeEnrolmentAnswer(p []byte) (EnrolmentAnswer, error) {
	r := reader{b: p}
	a := EnrolmentAnswer{Refusal: EnrolmentRefusal(r.optionalEnum("refusal", uint8(lastJoin)))}
	if a.Refusal != 0 {
		return a, r.finish("admission")
	}
	a.Root, a.Certificate = r.bytes("root document", MaxRoot), r.bytes("certificate", maxCertificate)
	a.CA = r.bytes("authority", maxCertificate)
	for range r.listLength("settings", maxSettings, 4) {
		s := Setting{r.str("setting", maxSettingName), r.str("setting's value", maxSetting)}
		if n := len(a.Settings); r.err == nil && n > 0 && a.Settings[n-1].Name >= s.Name {
			r.fail(fmt.Errorf("setting %q after %q: they must ascend", s.Name, a.Settings[n-1].Name))
		}
		a.Settings = append(a.Settings, s)
	}
	return a, r.finish("admission")
}
