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

// SealingKeys is what an agent seals with. All but DevicePrivateKey is fresh random bytes for
// every exchange, so that no key and nonce ever meet twice: not after a
// restart, in another attempt, or on a cloned device.
//
// Seals keep strangers out, and the broker. Each neighbour of a sender holds its key; which of them has sealed a
// message, proofs tell.
type SealingKeys struct {
	DevicePrivateKey *ecdh.PrivateKey // X25519, of the device
	SenderKey        [32]byte         // seals what this agent sends in this block
	WrappingSalt     [16]byte         // of the keys that wrap SenderKey
}

// DeriveDeviceKey derives a device's X25519 key from the seed of its Ed25519 key: one secret to keep, two uses kept
// apart.
func DeriveDeviceKey(seed []byte) (*ecdh.PrivateKey, error) {
	b, err := hkdf.Key(sha256.New, seed, nil, "fl/v1/x25519", 32)
	if err != nil {
		return nil, err
	}
	return ecdh.X25519().NewPrivateKey(b)
}

// senderSealer holds one sender's key.
type senderSealer struct{ aead cipher.AEAD }

func newSenderSealer(key []byte) (*senderSealer, error) {
	aead, err := chacha20poly1305.New(key)
	if err != nil {
		return nil, err
	}
	return &senderSealer{aead}, nil
}

// sealNonce is unique under a sender's key: snapshots count steps and parts, controls their own number.
func sealNonce(t wire.PeerMessageType, part uint16, count uint64) []byte {
	n := make([]byte, chacha20poly1305.NonceSize)
	n[0] = uint8(t)
	binary.LittleEndian.PutUint16(n[2:], part)
	binary.LittleEndian.PutUint64(n[4:], count)
	return n
}

// deriveSharedSecret is that of two devices, from the private key of one and the public key of the other.
func deriveSharedSecret(private *ecdh.PrivateKey, public []byte) ([]byte, error) {
	theirs, err := ecdh.X25519().NewPublicKey(public)
	if err != nil {
		return nil, err
	}
	return private.ECDH(theirs)
}

// newWrappingSealer returns the key under which a sender's key travels from one start of a program to another.
func newWrappingSealer(secret, salt []byte, h wire.PeerMessageHeader, to wire.PeerInstance) (*senderSealer, error) {
	info := fmt.Sprintf("fl/v1/d2d %d %d %s %d %s %d", h.Run, h.Round, h.Sender, h.SenderBootEpoch, to.ID, to.BootEpoch)
	key, err := hkdf.Key(sha256.New, secret, salt, info, 32)
	if err != nil {
		return nil, err
	}
	return newSenderSealer(key)
}

// wrapSenderKey seals a sender's key for a neighbour.
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

// unwrapSenderKey opens the key that a neighbour has sealed for self.
func unwrapSenderKey(secret []byte, h wire.PeerMessageHeader, self wire.PeerInstance, salt,
	wrapped []byte) (*senderSealer,
	error) {
	s, err := newWrappingSealer(secret, salt, h, self)
	if err != nil {
		return nil, err
	}
	key, err := s.aead.Open(nil, sealNonce(wire.PeerGreeting, 0, 0), wrapped, nil)
	if err != nil {
		return nil, errors.New("the key in the greeting does not open")
	}
	return newSenderSealer(key)
}
