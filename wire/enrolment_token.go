package wire

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"strings"
)

// EnrolmentToken allows a device to enrol in a federation. A person copies it from the coordinator to the device.
type EnrolmentToken struct {
	Agent  AgentID // id of the agent to enrol; empty means that the device may choose any unused id
	Secret [16]byte
	Pin    RootPin // pin of the root key, with which the device authenticates the coordinator
}

const tokenPrefix = "fm1."

var tokenEncoding = base32.StdEncoding.WithPadding(base32.NoPadding)

// tokenChecksumSize is the number of checksum bytes in a token. The checksum distinguishes a mistyped token from a
// token that was already used.
const tokenChecksumSize = 4

// String returns the token as text: fm1.AGENT.TEXT, where TEXT is secret, pin and checksum in base32.
func (t *EnrolmentToken) String() string {
	body := append(t.Secret[:len(t.Secret):len(t.Secret)], t.Pin[:]...)
	return tokenPrefix + string(t.Agent) + "." + tokenEncoding.EncodeToString(append(body, t.checksum()...))
}

func (t *EnrolmentToken) checksum() []byte {
	h := sha256.New()
	h.Write([]byte(tokenPrefix + string(t.Agent) + "."))
	h.Write(t.Secret[:])
	h.Write(t.Pin[:])
	return h.Sum(nil)[:tokenChecksumSize]
}

// ParseEnrolmentToken parses the text form of a token as returned by String.
func ParseEnrolmentToken(s string) (EnrolmentToken, error) {
	rest, begins := strings.CutPrefix(strings.TrimSpace(s), tokenPrefix)
	dot := strings.LastIndexByte(rest, '.')
	if !begins || dot < 0 {
		return EnrolmentToken{}, errors.New("this is not an enrolment token: expected " + tokenPrefix +
			"DEVICE.TEXT, as printed by `coordinator enrol`")
	}
	t := EnrolmentToken{Agent: AgentID(rest[:dot])}
	p, err := tokenEncoding.DecodeString(strings.ToUpper(rest[dot+1:]))
	if err != nil || len(p) != len(t.Secret)+len(t.Pin)+tokenChecksumSize {
		return EnrolmentToken{},
			errors.New("the enrolment token is incomplete: copy the whole token again, from " + tokenPrefix + " to " +
				"the end")
	}
	copy(t.Secret[:], p)
	copy(t.Pin[:], p[len(t.Secret):])
	if string(t.checksum()) != string(p[len(p)-tokenChecksumSize:]) {
		return EnrolmentToken{},
			errors.New("the checksum of the enrolment token is wrong: a character was changed; copy the token again")
	}
	if t.Agent != "" {
		err = t.Agent.ValidateNonCoordinator()
	}
	if err != nil {
		return EnrolmentToken{}, fmt.Errorf("token: %w", err)
	}
	return t, nil
}

// SigningKey returns the key pair that is derived from the token. The coordinator stores only the public key, so that
// its disk and backups cannot be used to enrol devices.
func (t *EnrolmentToken) SigningKey() ed25519.PrivateKey {
	h := sha256.New()
	h.Write([]byte("fedmesh/v2/token\x00" + string(t.Agent) + "\x00"))
	h.Write(t.Secret[:])
	return ed25519.NewKeyFromSeed(h.Sum(nil))
}
