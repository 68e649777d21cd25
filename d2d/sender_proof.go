package d2d

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"

	"github.com/fedmesh/fedmesh/wire"
)

// proofKeys holds the message authentication keys of one edge, which only the two ends of the edge can derive. All
// neighbours of a sender know the sender's sealing key, so only the proof keys show which agent has sent a message.
type proofKeys struct{ sendKey, receiveKey hash.Hash }

func newProofKeys(secret []byte, h wire.PeerMessageHeader, other wire.AgentID) (p proofKeys, err error) {
	key := func(from, to wire.AgentID) hash.Hash {
		info := fmt.Sprintf("fl/v1/d2d proof %d %d %s %s", h.Run, h.Round, from, to)
		k, failed := hkdf.Key(sha256.New, secret, nil, info, sha256.Size)
		err = errors.Join(err, failed)
		return hmac.New(sha256.New, k)
	}
	return proofKeys{key(h.Sender, other), key(other, h.Sender)}, err
}

// senderProof returns the proof of a message's sender: the HMAC-SHA256 of the message's SHA-256 digest, truncated to 16
// bytes.
func senderProof(key hash.Hash, message [sha256.Size]byte) []byte {
	key.Reset()
	key.Write(message[:])
	return key.Sum(nil)[:wire.PeerProofSize]
}

// appendSenderProofs appends one proof for each receiver to an encrypted message.
func (e *messageExchange[T]) appendSenderProofs(message []byte, all ...edgeReceiver) []byte {
	if !e.addsProofs {
		return message
	}
	sum := sha256.Sum256(message)
	for _, to := range all {
		message = append(message, senderProof(e.peerByID(to.NeighborID).senderProofKeys.sendKey, sum)...)
	}
	return message
}

var errInvalidSenderProof = errors.New("invalid sender proof")

// checkSenderProof verifies the i-th sender proof of a message. It returns the message and its encrypted part, both
// without the proofs.
func (e *messageExchange[T]) checkSenderProof(p *neighborPeer, payload, sealed []byte, i, of int) (message, seal []byte,
	err error) {
	if !e.addsProofs {
		return payload, sealed, nil
	}
	size := of * wire.PeerProofSize
	if len(sealed) < size {
		return nil, nil, errInvalidSenderProof
	}
	message, seal = payload[:len(payload)-size], sealed[:len(sealed)-size]
	proof := payload[len(message)+i*wire.PeerProofSize:][:wire.PeerProofSize]
	if !hmac.Equal(proof, senderProof(p.senderProofKeys.receiveKey, sha256.Sum256(message))) {
		return nil, nil, errInvalidSenderProof
	}
	return message, seal, nil
}
