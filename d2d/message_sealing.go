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

// SealingKeys holds the keys with which an agent seals messages. All except DevicePrivateKey are fresh random bytes for
// every exchange. No key and nonce are therefore used twice, even after a restart, in another attempt or on a cloned
// device.
//
// Seals keep out the broker and agents that are not neighbours. All neighbours of a sender have its key, so only a
// sender proof shows which of them has sealed a message.
type SealingKeys struct {
	DevicePrivateKey *ecdh.PrivateKey // X25519 private key of the device
	SenderKey        [32]byte         // key that encrypts the messages of this agent in this block
	WrappingSalt     [16]byte         // salt for deriving the keys that encrypt SenderKey for each neighbour
}

// DeriveDeviceKey derives a device's X25519 key from the seed of its Ed25519 key, so that the device stores one secret
// for two separate uses.
func DeriveDeviceKey(seed []byte) (*ecdh.PrivateKey, error) {
	b, err := hkdf.Key(sha256.New, seed, nil, "fl/v1/x25519", 32)
	if err != nil {
		return nil, err
	}
	return ecdh.X25519().NewPrivateKey(b)
}

// senderSealer holds the cipher of one sender's key.
type senderSealer struct{ aead cipher.AEAD }

func newSenderSealer(key []byte) (*senderSealer, error) {
	aead, err := chacha20poly1305.New(key)
	if err != nil {
		return nil, err
	}
	return &senderSealer{aead}, nil
}

// sealNonce returns a nonce that is unique under a sender's key. Snapshots use the step and part as counter, control
// messages their own counter.
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

// newWrappingSealer returns the cipher that wraps a sender's key between the given starts of two programs.
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

// unwrapSenderKey opens a neighbour's key that is wrapped for self.
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
