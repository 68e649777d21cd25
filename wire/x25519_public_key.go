package wire

import "encoding/hex"

// X25519PublicKey is an X25519 public key; zero means none.
type X25519PublicKey [32]byte

// weakPeerKeys contains the u coordinates of points of small order, without the highest bit, which X25519 ignores. With
// such a key the shared secret is always zero, so that encryption would be useless. RFC 7748, section 6.1, permits
// rejecting these keys.
var weakPeerKeys = func() map[X25519PublicKey]bool {
	weak := map[X25519PublicKey]bool{}
	for _, text := range []string{
		"0000000000000000000000000000000000000000000000000000000000000000",
		"0100000000000000000000000000000000000000000000000000000000000000",
		"e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
		"5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
		"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	} {
		b, err := hex.DecodeString(text)
		if err != nil {
			panic(err) // This cannot happen: the table contains only hexadecimal digits.
		}
		weak[X25519PublicKey(b)] = true
	}
	return weak
}()

// hasSmallOrder reports whether the key is a point of small order. It returns false for the zero key, which means that
// there is no key.
func (k X25519PublicKey) hasSmallOrder() bool {
	if k == (X25519PublicKey{}) {
		return false
	}
	k[31] &= 0x7f
	return weakPeerKeys[k]
}
