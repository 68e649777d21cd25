package wire

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"strings"
)

// EnrolmentToken lets a device join a federation: a person carries it from the coordinator to the device.
type EnrolmentToken struct {
	Agent  AgentID // that the device becomes; empty = any that is free
	Secret [16]byte
	Pin    RootPin // of the root key, by which the device knows the coordinator
}

// tokenBegin is what all tokens begin with.
const tokenBegin = "fm1."

var tokenText = base32.StdEncoding.WithPadding(base32.NoPadding)

// tokenSum is how many bytes of a checksum a token has: a mistyped one is told from a used one.
const tokenSum = 4

// String returns the token as people carry it: fm1.AGENT.TEXT, where TEXT is secret, pin and checksum in base32.
func (t *EnrolmentToken) String() string {
	body := append(t.Secret[:len(t.Secret):len(t.Secret)], t.Pin[:]...)
	return tokenBegin + string(t.Agent) + "." + tokenText.EncodeToString(append(body, t.sum()...))
}

func (t *EnrolmentToken) sum() []byte {
	h := sha256.New()
	h.Write([]byte(tokenBegin + string(t.Agent) + "."))
	h.Write(t.Secret[:])
	h.Write(t.Pin[:])
	return h.Sum(nil)[:tokenSum]
}

// ParseToken reads a token.
func ParseToken(s string) (EnrolmentToken, error) {
	rest, begins := strings.CutPrefix(strings.TrimSpace(s), tokenBegin)
	dot := strings.LastIndexByte(rest, '.')
	if !begins || dot < 0 {
		return EnrolmentToken{}, errors.New("this is no token: want " + tokenBegin +
			"DEVICE.TEXT, as `coordinator enrol` prints it")
	}
	t := EnrolmentToken{Agent: AgentID(rest[:dot])}
	p, err := tokenText.DecodeString(strings.ToUpper(rest[dot+1:]))
	if err != nil || len(p) != len(t.Secret)+len(t.Pin)+tokenSum {
		return EnrolmentToken{}, errors.New("the token is not whole: copy it again, from " + tokenBegin + " to its end")
	}
	copy(t.Secret[:], p)
	copy(t.Pin[:], p[len(t.Secret):])
	if string(t.sum()) != string(p[len(p)-tokenSum:]) {
		return EnrolmentToken{},
			errors.New("the token's checksum is wrong: a character of it was changed; copy it again")
	}
	if t.Agent != "" {
		err = t.Agent.ValidateAgent()
	}
	if err != nil {
		return EnrolmentToken{}, fmt.Errorf("token: %w", err)
	}
	return t, nil
}

// Key returns the key pair that the token stands for. The coordinator keeps its public part only, so its disk and its
// backups let nobody join.
func (t *EnrolmentToken) Key() ed25519.PrivateKey {
	h := sha256.New()
	h.Write([]byte("fedmesh/v2/token\x00" + string(t.Agent) + "\x00"))
	h.Write(t.Secret[:])
	return ed25519.NewKeyFromSeed(h.Sum(nil))
}
