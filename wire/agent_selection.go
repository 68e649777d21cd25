package wire

import (
	"cmp"
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/binary"
	"errors"
	"math"
	"math/big"
	"slices"
)

// MaxSelectionBytes bounds the selection in an announcement, in bytes. Larger ones are invitations.
const MaxSelectionBytes = 4 << 10

// AgentSelection tells who is drawn for the round that is announced. Each agent finds out for itself only: a tag is a
// MAC under a key that the coordinator shares with one agent, over the announcement's place.
type AgentSelection struct {
	CommonStepSizeWeight  float64  // of the local step size, for all that are drawn; 0 = each has its own
	AgentTags             []uint64 // ascending
	MaskedStepSizeWeights []uint64 // by tag, the bits of its weight in disguise, where each has its own
}

// SelectedAgent is an agent that is drawn.
type SelectedAgent struct {
	Key            SelectionKey
	StepSizeWeight float64 // positive
}

// EncodedSelectionSize returns how many bytes a selection of n agents takes.
func EncodedSelectionSize(n int, alike bool) int {
	if alike {
		return 16 + 8*n
	}
	return 16 + 16*n
}

// NewAgentSelection makes the selection of the announcement at a place. It tells nobody but the selected who they are.
func NewAgentSelection(o AnnouncementPosition, instance uint64, selected []SelectedAgent) AgentSelection {
	var s AgentSelection
	type entry struct{ tag, mask uint64 }
	entries, alike := make([]entry, len(selected)), true
	for i, x := range selected {
		tag, pad := x.Key.deriveTagAndPad(o, instance)
		entries[i] = entry{tag, pad ^ math.Float64bits(x.StepSizeWeight)}
		alike = alike && x.StepSizeWeight == selected[0].StepSizeWeight
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.tag, b.tag) })
	entries = slices.CompactFunc(entries, func(a, b entry) bool { return a.tag == b.tag }) // once in 2⁶⁴: invited later
	for _, e := range entries {
		s.AgentTags = append(s.AgentTags, e.tag)
		if !alike {
			s.MaskedStepSizeWeights = append(s.MaskedStepSizeWeights, e.mask)
		}
	}
	if alike && len(selected) > 0 {
		s.CommonStepSizeWeight = selected[0].StepSizeWeight
	}
	return s
}

// FindAgentWeight reports whether the agent with this key is selected, and the weight of its local step size.
func (s *AgentSelection) FindAgentWeight(k SelectionKey, o AnnouncementPosition, instance uint64) (weight float64,
	selected bool) {
	if len(s.AgentTags) == 0 {
		return 0, false
	}
	tag, pad := k.deriveTagAndPad(o, instance)
	i, found := slices.BinarySearch(s.AgentTags, tag)
	if !found {
		return 0, false
	}
	if weight = s.CommonStepSizeWeight; weight == 0 {
		weight = math.Float64frombits(s.MaskedStepSizeWeights[i] ^ pad)
	}
	return weight, isFinite(weight) && weight > 0
}

func (w *writer) agentSelection(s *AgentSelection) {
	if len(s.AgentTags) == 0 {
		return
	}
	w.f64(s.CommonStepSizeWeight)
	for _, list := range [][]uint64{s.AgentTags, s.MaskedStepSizeWeights} {
		w.u32(uint32(len(list)))
		for _, x := range list {
			w.u64(x)
		}
	}
}

func (r *reader) agentSelection(s *AgentSelection) {
	s.CommonStepSizeWeight, s.AgentTags, s.MaskedStepSizeWeights = r.f64("weight"), r.u64s("tags"), r.u64s("masks")
	for i := 1; i < len(s.AgentTags); i++ {
		if s.AgentTags[i-1] >= s.AgentTags[i] {
			r.failf("tag %x after %x: they must ascend", s.AgentTags[i], s.AgentTags[i-1])
			return
		}
	}
	switch {
	case r.err != nil:
	case math.Signbit(s.CommonStepSizeWeight):
		r.failf("weight is %v, must not be negative", s.CommonStepSizeWeight)
	case s.CommonStepSizeWeight == 0 && len(s.MaskedStepSizeWeights) != len(s.AgentTags),
		s.CommonStepSizeWeight != 0 && len(s.MaskedStepSizeWeights) > 0:
		r.failf("%d masks for %d tags of weight %v", len(s.MaskedStepSizeWeights), len(s.AgentTags),
			s.CommonStepSizeWeight)
	}
}

func (r *reader) u64s(field string) []uint64 {
	n := r.listLength(field, MaxSelectionBytes/8, 8)
	if n == 0 {
		return nil
	}
	list := make([]uint64, n)
	for i := range list {
		list[i] = r.u64()
	}
	return list
}

// SelectionKey is a secret of the coordinator and one agent.
type SelectionKey [32]byte

// NewSelectionKey returns the secret of the owner of a key and its peer: the same at both ends. Both Ed25519 keys are
// used in their X25519 forms (RFC 7748 4.1). The error says that the peer's key has none.
func NewSelectionKey(own ed25519.PrivateKey, peer ed25519.PublicKey) (SelectionKey, error) {
	private, err := ecdh.X25519().NewPrivateKey(x25519ScalarOf(own))
	if err != nil {
		return SelectionKey{}, err
	}
	u, err := x25519PublicFromEd25519(peer)
	if err != nil {
		return SelectionKey{}, err
	}
	public, err := ecdh.X25519().NewPublicKey(u)
	if err != nil {
		return SelectionKey{}, err
	}
	secret, err := private.ECDH(public)
	if err != nil {
		return SelectionKey{}, err
	}
	key, err := hkdf.Key(sha256.New, secret, nil, "fl/v1/selection", len(SelectionKey{}))
	if err != nil {
		return SelectionKey{}, err
	}
	return SelectionKey(key), nil
}

// x25519ScalarOf returns what an Ed25519 key multiplies the base point by (RFC 8032 5.1.5). X25519 sets and clears its
// bits.
func x25519ScalarOf(k ed25519.PrivateKey) []byte {
	sum := sha512.Sum512(k.Seed())
	return sum[:32]
}

// curve25519FieldPrime is 2²⁵⁵ − 19.
var curve25519FieldPrime = new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 255), big.NewInt(19))

// x25519PublicFromEd25519 returns the u coordinate of an Ed25519 public key: (1 + y)/(1 − y) in the field. All of it is
// public.
func x25519PublicFromEd25519(k ed25519.PublicKey) ([]byte, error) {
	big1, y := big.NewInt(1), slices.Clone([]byte(k))
	if len(y) != ed25519.PublicKeySize {
		return nil, errors.New("not an Ed25519 public key")
	}
	y[31] &= 0x7f // the sign of x
	slices.Reverse(y)
	n := new(big.Int).SetBytes(y)
	over := new(big.Int).Sub(big1, n)
	if over.Mod(over, curve25519FieldPrime).Sign() == 0 {
		return nil, errors.New("a public key of small order")
	}
	u := n.Add(n, big1)
	u.Mul(u, over.ModInverse(over, curve25519FieldPrime)).Mod(u, curve25519FieldPrime)
	out := u.FillBytes(make([]byte, 32))
	slices.Reverse(out)
	return out, nil
}

// deriveTagAndPad returns the tag of the key's agent in the announcement at a place, and the pad of its weight. No two
// announcements have the same place and instance.
func (k SelectionKey) deriveTagAndPad(o AnnouncementPosition, instance uint64) (tag, pad uint64) {
	le := binary.LittleEndian
	nonce := le.AppendUint64(make([]byte, 0, 36), uint64(o.Epoch))
	nonce = le.AppendUint64(nonce, uint64(o.Run))
	nonce = le.AppendUint64(nonce, uint64(o.Round))
	nonce = le.AppendUint32(nonce, uint32(o.Attempt))
	nonce = le.AppendUint64(nonce, instance)
	mac := hmac.New(sha256.New, k[:])
	mac.Write(nonce)
	sum := mac.Sum(nil)
	return le.Uint64(sum), le.Uint64(sum[8:])
}
