package wire_test

import (
	"crypto/ecdh"
	"crypto/rand"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/wire"
)

// TestWeakPeerKeys checks that a hello message is malformed exactly if X25519 gives no secret for its peer key. The
// test derives the weak points from the curve equation v² = u³ + 486662 u² + u and compares them with crypto/ecdh.
func TestWeakPeerKeys(t *testing.T) {
	p := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 255), big.NewInt(19))
	// Let A be the curve's coefficient 486662. If a point P has the coordinate u, its double 2P has the coordinate
	// (u² − 1)² / (4 (u³ + A u² + u)). A point of order 2 has u = 0. A point of order 4 has u = ±1 (one is on the
	// curve, one on its twist). If P has order 8, 2P has the coordinate ±1, so (u² − 1)² = ±4 (u³ + A u² + u), which is
	// u⁴ ∓ 4u³ − (2 ± 4A) u² ∓ 4u + 1 = 0. With z = u + 1/u this becomes z² ∓ 4z − 4 ∓ 4A = 0.
	us := []*big.Int{big.NewInt(1), new(big.Int).Sub(p, big.NewInt(1))}
	for _, sign := range []int64{1, -1} {
		// root is the square root in the solutions z = ±2 ± √(8 ± 4A)
		root := new(big.Int).ModSqrt(new(big.Int).Mod(big.NewInt(8+sign*4*486662), p), p)
		if root == nil {
			continue
		}
		for _, r := range []*big.Int{root, new(big.Int).Neg(root)} {
			z := new(big.Int).Add(big.NewInt(2*sign), r)
			// The solutions of u + 1/u = z are u = (z ± √(z² − 4)) / 2.
			d := new(big.Int).ModSqrt(new(big.Int).Mod(new(big.Int).Sub(new(big.Int).Mul(z, z), big.NewInt(4)), p), p)
			if d == nil {
				continue
			}
			half := new(big.Int).ModInverse(big.NewInt(2), p)
			for _, e := range []*big.Int{d, new(big.Int).Neg(d)} {
				u := new(big.Int).Mul(new(big.Int).Add(z, e), half)
				us = append(us, u.Mod(u, p))
			}
		}
	}
	us = append(us, p, new(big.Int).Add(p, big.NewInt(1))) // non-canonical encodings of 0 and 1
	if len(us) != 6 {
		t.Errorf("%d values are derived, want 1, −1, two of order 8, and two spellings", len(us))
	}
	private, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(key wire.X25519PublicKey) bool {
		h := wire.Hello{PeerKey: key}
		_, err := wire.DecodeHello(h.Body())
		if err != nil && !strings.Contains(err.Error(), "small order") {
			t.Errorf("%x: error %v", key, err)
		}
		return err != nil
	}
	for _, u := range us {
		b := u.FillBytes(make([]byte, 32))
		slices.Reverse(b)
		for _, high := range []byte{0, 0x80} {
			key := wire.X25519PublicKey(b)
			key[31] |= high
			public, err := ecdh.X25519().NewPublicKey(key[:])
			if err != nil {
				t.Fatal(err)
			}
			if _, err := private.ECDH(public); err == nil {
				t.Errorf("%x is not of small order", key)
			}
			if !refused(key) {
				t.Errorf("%x is taken", key)
			}
		}
	}
	if refused(wire.X25519PublicKey{}) {
		t.Error("an agent that does not mix is refused")
	}
	for range 100 {
		k, err := ecdh.X25519().GenerateKey(rand.Reader)
		if err != nil || refused(wire.X25519PublicKey(k.PublicKey().Bytes())) {
			t.Errorf("a sound key is refused, error %v", err)
		}
	}
}
