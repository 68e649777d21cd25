package d2d

import (
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/fedmesh/fedmesh/wire"
)

// SealingKeys holds the keys with which an agent seals (encrypts and authenticates) messages. All fields except
// DevicePrivateKey are fresh random bytes for every exchange. Therefore no combination of key and nonce is used twice,
// even after a restart, in another attempt of a round, or on a cloned device.
//
// Sealing protects messages from the broker and from agents that are not neighbours. All neighbours of a sender have
// the sender's key, so only a sender proof shows which of these agents has sealed a message.
type SealingKeys struct {
	DevicePrivateKey *ecdh.PrivateKey // X25519 private key of the device
	SenderKey        [32]byte         // key that encrypts this agent's messages in this block
	WrappingSalt     [16]byte         // salt for deriving the keys that encrypt SenderKey for each neighbour
}

// DeriveDeviceKey derives a device's X25519 key from the seed of the device's Ed25519 key. The device can therefore
// store one secret for two separate uses.
func DeriveDeviceKey(seed []byte) (*ecdh.PrivateKey, error) {
	b, err := hkdf.Key(sha256.New, seed, nil, "fl/v1/x25519", 32)
	if err != nil {
		return nil, err
	}
	return ecdh.X25519().NewPrivateKey(b)
}

// senderSealer holds the cipher for the messages of one sender.
type senderSealer struct{ aead cipher.AEAD }

func newSenderSealer(key []byte) (*senderSealer, error) {
	aead, err := chacha20poly1305.New(key)
	if err != nil {
		return nil, err
	}
	return &senderSealer{aead}, nil
}

// sealNonce returns a nonce that is unique under a sender's key. The nonce of a snapshot contains the step and the
// part, and the nonce of a control message contains a counter of control messages.
func sealNonce(t wire.PeerMessageType, part uint16, count uint64) []byte {
	n := make([]byte, chacha20poly1305.NonceSize)
	n[0] = uint8(t)
	binary.LittleEndian.PutUint16(n[2:], part)
	binary.LittleEndian.PutUint64(n[4:], count)
	return n
}

// deriveSharedSecret returns the X25519 shared secret of two devices.
func deriveSharedSecret(private *ecdh.PrivateKey, public []byte) ([]byte, error) {
	theirs, err := ecdh.X25519().NewPublicKey(public)
	if err != nil {
		return nil, err
	}
	return private.ECDH(theirs)
}

// newWrappingSealer returns the cipher that encrypts a sender's key for one neighbour. It is valid only between the
// given processes (boot epochs) of the two agents.
func newWrappingSealer(secret, salt []byte, h wire.PeerMessageHeader, to wire.PeerInstance) (*senderSealer, error) {
	info := fmt.Sprintf("fl/v1/d2d %d %d %s %d %s %d", h.Run, h.Round, h.Sender, h.SenderBootEpoch, to.ID, to.BootEpoch)
	key, err := hkdf.Key(sha256.New, secret, salt, info, 32)
	if err != nil {
		return nil, err
	}
	return newSenderSealer(key)
}

// wrapSenderKey encrypts a sender's key for one neighbour.
func wrapSenderKey(k *SealingKeys, secret []byte, h wire.PeerMessageHeader,
	to wire.PeerInstance) (wrapped [wire.WrappedKeySize]byte,
	err error) {
	s, err := newWrappingSealer(secret, k.WrappingSalt[:], h, to)
	if err != nil {
		return wrapped, err
	}
	s.aead.Seal(wrapped[:0], sealNonce(wire.PeerGreeting, 0, 0), k.SenderKey[:], nil)
	return wrapped, nil
}

// unwrapSenderKey decrypts a neighbour's key that was encrypted for the agent self.
func unwrapSenderKey(secret []byte, h wire.PeerMessageHeader, self wire.PeerInstance, salt,
	wrapped []byte) (*senderSealer,
	error) {
	s, err := newWrappingSealer(secret, salt, h, self)
	if err != nil {
		return nil, err
	}
	key, err := s.aead.Open(nil, sealNonce(wire.PeerGreeting, 0, 0), wrapped, nil)
	if err != nil {
		return nil, errors.New("cannot decrypt the key in a neighbour's greeting message")
	}
	return newSenderSealer(key)
}
