package bench

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"

	"github.com/fedmesh/fedmesh/wire"
)

// voice seals as the daemons do or, to show what signatures cost, with a
// signature that was made before the clock ran and that nobody checks.
type voice struct {
	sender   wire.AgentID
	key      ed25519.PrivateKey
	sequence uint64
	unsigned map[wire.Type][]byte // an envelope of each type, to be filled in
}

// seal returns an envelope; all but the signature is right in any case.
func (v *voice) seal(signed bool, t wire.Type, r wire.RoundID, body []byte) []byte {
	v.sequence++
	h := wire.Header{Type: t, Federation: federation, Sender: v.sender, Epoch: 1, Run: 1, Round: r,
		Sequence: v.sequence}
	model := v.unsigned[t]
	if signed || model == nil {
		p := wire.Seal(nil, h, body, v.key)
		if model == nil { // in the round that warms up
			v.unsigned[t] = p[:envelopeHead]
		}
		return p
	}
	p := append(make([]byte, 0, len(model)+len(body)), model...)
	binary.LittleEndian.PutUint64(p[104:], uint64(r))
	binary.LittleEndian.PutUint64(p[112:], v.sequence)
	binary.LittleEndian.PutUint32(p[120:], uint32(len(body)))
	hash := sha256.Sum256(body)
	copy(p[128:], hash[:])
	return append(p, body...)
}

// envelopeHead is all of an envelope before its body, in bytes.
const envelopeHead = wire.HeaderSize + ed25519.SignatureSize

// open reads an envelope, and checks its signature if there is one.
func open(signed bool, p []byte, key ed25519.PublicKey) (wire.Envelope, error) {
	e, err := wire.Open(p)
	if err == nil && signed {
		err = e.Verify(key)
	}
	return e, err
}
