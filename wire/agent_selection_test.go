package wire_test

import (
	"crypto/ecdh"
	"crypto/ed25519"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/wire"
)

func ownKey(i int) ed25519.PrivateKey {
	seed := make([]byte, ed25519.SeedSize)
	copy(seed, fmt.Sprint(i))
	return ed25519.NewKeyFromSeed(seed)
}

func publicKey(i int) ed25519.PublicKey { return ownKey(i).Public().(ed25519.PublicKey) }

func mustKey(t testing.TB, own ed25519.PrivateKey, peer ed25519.PublicKey) wire.SelectionKey {
	t.Helper()
	k, err := wire.NewSelectionKey(own, peer)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestSelection checks that each selected agent finds its weight with its own key, and that other agents find no entry.
func TestSelection(t *testing.T) {
	const coordinator, drawn, all = 0, 100, 200
	place := wire.AnnouncementPosition{Root: 1, Epoch: 2, Run: 3, Round: 4, Attempt: 5, Phase: wire.PhaseOpen}
	for _, alike := range []bool{true, false} {
		weight := func(i int) float64 {
			if alike {
				return 1.5
			}
			return float64(i)
		}
		var selected []wire.SelectedAgent
		for i := 1; i <= drawn; i++ {
			selected = append(selected, wire.SelectedAgent{Key: mustKey(t, ownKey(coordinator), publicKey(i)),
				StepSizeWeight: weight(i)})
		}
		a := wire.Announcement{Attempt: 5, Phase: wire.PhaseFinished, Kind: wire.KindStatistics,
			Selection: wire.NewAgentSelection(place, 7, selected)}
		before := len((&wire.Announcement{Attempt: 5, Phase: wire.PhaseFinished, Kind: wire.KindStatistics}).Body())
		const head = 2 + len("selection") + 1 + 4
		if got := len(a.Body()) - before - head; got != wire.EncodedSelectionSize(drawn, alike) {
			t.Errorf("alike %v: a selection of %d bytes, SelectionSize says %d", alike, got,
				wire.EncodedSelectionSize(drawn, alike))
		}
		read, err := wire.DecodeAnnouncement(a.Body())
		if err != nil {
			t.Fatal(err)
		}
		for i := 1; i <= all; i++ {
			k := mustKey(t, ownKey(i), publicKey(coordinator))
			w, found := read.Selection.FindAgentWeight(k, place, 7)
			if found != (i <= drawn) || found && w != weight(i) {
				t.Errorf("alike %v: agent %d finds %v, %v", alike, i, w, found)
			}
			next := place
			next.Attempt++
			if _, found := read.Selection.FindAgentWeight(k, next, 7); found {
				t.Errorf("alike %v: agent %d finds itself in another announcement", alike, i)
			}
			if _, found := read.Selection.FindAgentWeight(k, place, 8); found {
				t.Errorf("alike %v: agent %d finds itself in the announcement of another start", alike, i)
			}
		}
	}
}

// TestSelectionUnlinkable checks that an agent has a different tag in each announcement, so that announcements do not
// show which agents were selected repeatedly.
func TestSelectionUnlinkable(t *testing.T) {
	k, seen := []wire.SelectedAgent{{Key: wire.SelectionKey{1}, StepSizeWeight: 1}}, map[uint64]string{}
	for name, o := range map[string]wire.AnnouncementPosition{
		"": {Attempt: 1}, "epoch": {Epoch: 1, Attempt: 1}, "run": {Run: 1, Attempt: 1}, "round": {Round: 1, Attempt: 1},
		"attempt": {Attempt: 2},
	} {
		for instance := range uint64(2) {
			tag := wire.NewAgentSelection(o, instance, k).AgentTags[0]
			if before, again := seen[tag]; again {
				t.Errorf("%q and %q have one tag", before, name)
			}
			seen[tag] = name
		}
	}
}

// TestSelectionKeyForms compares the X25519 form of an Ed25519 public key with the product of the base point and the
// scalar of the private key.
func TestSelectionKeyForms(t *testing.T) {
	for i := range 50 {
		a, b := ownKey(i), ownKey(i+1000)
		if mustKey(t, a, b.Public().(ed25519.PublicKey)) != mustKey(t, b, a.Public().(ed25519.PublicKey)) {
			t.Fatalf("keys %d: the two ends have different secrets", i)
		}
	}
	// The key is from RFC 8032, section 7.1, test 1; libsodium's crypto_sign_ed25519_pk_to_curve25519 has converted it.
	public, _ := hex.DecodeString("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
	seed, _ := hex.DecodeString("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
	u, err := wire.MontgomeryForTest(public)
	if err != nil {
		t.Fatal(err)
	}
	scalar := wire.ScalarForTest(ed25519.NewKeyFromSeed(seed))
	private, err := ecdh.X25519().NewPrivateKey(scalar)
	if err != nil {
		t.Fatal(err)
	}
	if want := private.PublicKey().Bytes(); !slices.Equal(u, want) {
		t.Errorf("the X25519 form is %x, want %x", u, want)
	}
	small := make([]byte, ed25519.PublicKeySize)
	for _, y := range []byte{0, 1} { // The coordinate y = 0 is a point of order 4, and y = 1 is the neutral element.
		small[0] = y
		if _, err := wire.NewSelectionKey(ownKey(1), small); err == nil {
			t.Errorf("y = %d: a key of small order has a secret", y)
		}
	}
	if _, err := wire.NewSelectionKey(ownKey(1), small[:31]); err == nil {
		t.Error("a key of 31 bytes has a secret")
	}
}

func TestSelectionRefuses(t *testing.T) {
	for want, s := range map[string]wire.AgentSelection{
		"must be in ascending order":           {CommonStepSizeWeight: 1, AgentTags: []uint64{2, 1}},
		"must not be negative":                 {CommonStepSizeWeight: -1, AgentTags: []uint64{1}},
		"0 masked weights do not match 1 tags": {AgentTags: []uint64{1}},
		"1 masked weights do not match 1 tags": {CommonStepSizeWeight: 1, AgentTags: []uint64{1},
			MaskedStepSizeWeights: []uint64{1}},
		"exceeds the limit of 512": {CommonStepSizeWeight: 1, AgentTags: make([]uint64, 513)},
	} {
		a := wire.Announcement{Attempt: 1, Phase: wire.PhaseIdle, Kind: wire.KindStatistics, Selection: s}
		if _, err := wire.DecodeAnnouncement(a.Body()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
