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

// MaxSelectionBytes is the maximum encoded size of a selection in an announcement. If a selection is larger, the
// coordinator invites each agent by a separate message.
const MaxSelectionBytes = 4 << 10

// AgentSelection lists the agents drawn for the announced round in a form in which each selected agent can recognise
// only itself. It contains a tag for each selected agent. A tag is a message authentication code (MAC) of the
// announcement's position under a key that the coordinator shares with one agent.
type AgentSelection struct {
	CommonStepSizeWeight float64
	AgentTags            []uint64 // tags of the selected agents, in ascending order
	// encrypted step size weights of the selected agents, one for each tag; empty if CommonStepSizeWeight is set
	MaskedStepSizeWeights []uint64
}

// SelectedAgent is an agent drawn for a round.
type SelectedAgent struct {
	Key            SelectionKey
	StepSizeWeight float64 // positive factor for the agent's local step size
}

// EncodedSelectionSize returns the encoded size, in bytes, of a selection of n agents. The parameter alike is true if
// all weights are equal.
func EncodedSelectionSize(n int, alike bool) int {
	if alike {
		return 16 + 8*n
	}
	return 16 + 16*n
}

// NewAgentSelection returns the selection for the announcement at position o. Each selected agent can recognise only
// its own entry.
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
	// Two agents get the same tag with probability 2⁻⁶⁴. One of them is then invited later by a separate message.
	entries = slices.CompactFunc(entries, func(a, b entry) bool { return a.tag == b.tag })
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

// FindAgentWeight reports whether the agent with this key is selected, and returns the weight of its local step size.
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
			r.failf("tag %x is listed after %x: tags must be in ascending order", s.AgentTags[i], s.AgentTags[i-1])
			return
		}
	}
	switch {
	case r.err != nil:
	case math.Signbit(s.CommonStepSizeWeight):
		r.failf("weight is %v: must not be negative", s.CommonStepSizeWeight)
	case s.CommonStepSizeWeight == 0 && len(s.MaskedStepSizeWeights) != len(s.AgentTags),
		s.CommonStepSizeWeight != 0 && len(s.MaskedStepSizeWeights) > 0:
		r.failf("%d masked weights do not match %d tags with the common weight %v",
			len(s.MaskedStepSizeWeights), len(s.AgentTags),
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

// SelectionKey is a secret shared by the coordinator and one agent.
type SelectionKey [32]byte

// NewSelectionKey derives the shared secret from a private key and the peer's public key, after converting both from
// Ed25519 to X25519 (RFC 7748 4.1). It returns an error if the peer's key has no X25519 form.
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

// x25519ScalarOf returns the secret scalar of an Ed25519 key (RFC 8032 5.1.5) without clamping, since X25519 clamps the
// scalar itself.
func x25519ScalarOf(k ed25519.PrivateKey) []byte {
	sum := sha512.Sum512(k.Seed())
	return sum[:32]
}

var curve25519FieldPrime = new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 255), big.NewInt(19))

// x25519PublicFromEd25519 returns the u coordinate (1 + y)/(1 − y) of an Ed25519 public key with the coordinate y. The
// computation need not run in constant time, because all inputs are public.
func x25519PublicFromEd25519(k ed25519.PublicKey) ([]byte, error) {
	big1, y := big.NewInt(1), slices.Clone([]byte(k))
	if len(y) != ed25519.PublicKeySize {
		return nil, errors.New("not an Ed25519 public key")
	}
	y[31] &= 0x7f // Clear the sign bit of x.
	slices.Reverse(y)
	n := new(big.Int).SetBytes(y)
	over := new(big.Int).Sub(big1, n)
	if over.Mod(over, curve25519FieldPrime).Sign() == 0 {
		return nil, errors.New("the public key has small order and is not secure")
	}
	u := n.Add(n, big1)
	u.Mul(u, over.ModInverse(over, curve25519FieldPrime)).Mod(u, curve25519FieldPrime)
	out := u.FillBytes(make([]byte, 32))
	slices.Reverse(out)
	return out, nil
}

// deriveTagAndPad returns the agent's tag for the announcement at position o, and the one-time pad that encrypts the
// agent's weight. Each announcement has a unique pair of position and instance.
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
