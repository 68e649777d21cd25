package agent

import (
	"crypto/ed25519"
	"fmt"
	"slices"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/wire"
)

// beaconKeys contains the keys that sign and verify beacons. The owner replaces it, and the scout reads it.
type beaconKeys struct {
	word    *wire.Word          // the coordinator's about this agent's key; nil = none
	keys    []ed25519.PublicKey // of the coordinator
	revoked []wire.AgentID
}

const wordFile = "word"

// newVoucher has the keys that count, and the word if one of them has given it.
func (a *Agent) newVoucher(word *wire.Word) *beaconKeys {
	v := &beaconKeys{}
	for _, k := range a.trust.keys {
		v.keys = append(v.keys, k.public)
	}
	if a.trust.document != nil {
		v.revoked = a.trust.document.Revoked
	}
	if word != nil && word.Key == wire.SignKeyOf(a.cfg.Key) &&
		word.Verify(a.cfg.Signatures, a.cfg.Federation, a.cfg.ID, v.keys...) {
		v.word = word
	}
	return v
}

// loadWord reads the word of an earlier start; nil if there is none.
func loadWord(c *Config) (word *wire.Word, err error) {
	const size = len(word.Key) + len(word.By)
	err = c.record(wordFile, fileVersion, size, func(b []byte) error {
		if len(b) != size {
			return fmt.Errorf("%d bytes, want %d", len(b), size)
		}
		word = &wire.Word{Key: wire.SignKey(b), By: wire.Signed(b[len(word.Key):])}
		return nil
	})
	return word, err
}

// takeWord takes up the word of an earlier start.
func (a *Agent) takeWord() error {
	word, err := loadWord(&a.cfg)
	a.mesh.voucher.Store(a.newVoucher(word))
	return err
}

func saveWord(c *Config, word *wire.Word) error {
	return c.Disk.SaveRecord(c.path(wordFile), fileVersion, append(slices.Clone(word.Key[:]), word.By[:]...))
}

// hearWord takes the coordinator's word about this agent's key, which makes its beacons count for others. One that
// cannot be stored is tried again; after a restart without it, the next invitation has it.
func (a *Agent) hearWord(by wire.Signed) {
	word, was := &wire.Word{Key: wire.SignKeyOf(a.cfg.Key), By: by}, a.mesh.voucher.Load().word
	if by == (wire.Signed{}) || !a.mesh.scouts() || was != nil && *was == *word {
		return
	}
	next := a.newVoucher(word)
	if next.word == nil {
		return // of a key of the coordinator that does not count here
	}
	a.mesh.vouch(next)
	a.owner.Go(func() {
		write := func() error { return saveWord(&a.cfg, word) }
		err := write()
		a.owner.Tell(func() { a.persisted(unwritten{saveTheWord, write, nil}, err) })
	})
}

// vouch replaces the voucher, and has the scout send a beacon.
func (m *mesh) vouch(v *beaconKeys) {
	m.voucher.Store(v)
	replace(m.vouched, struct{}{})
	m.scoutWaiter.Wake()
}

// signBeacon completes a beacon's message; nil without a word.
func (m *mesh) signBeacon(message []byte) []byte {
	v := m.voucher.Load()
	if v.word == nil {
		return nil
	}
	return wire.SignBeacon(m.cfg.Signatures, message, m.cell(), *v.word, m.cfg.Key)
}

// checkBeacon returns why a beacon does not count. An agent without a word hears those that are not signed, too: of
// agents whose coordinator gives no words yet, or who have not been invited yet.
func (m *mesh) checkBeacon(from wire.AgentID, proof *wire.BeaconProof) error {
	switch v := m.voucher.Load(); {
	case slices.Contains(v.revoked, from):
		return host.Drop(DropSignature, "a beacon of %s, which the root document revokes", from)
	case proof == nil && v.word == nil:
		return nil
	case proof == nil:
		return host.Drop(DropSignature, "a beacon of %s that is not signed", from)
	case !proof.Word.Verify(m.cfg.Signatures, m.cfg.Federation, from, v.keys...):
		return host.Drop(DropSignature, "a beacon of %s with a key for which the coordinator has not given its word",
			from)
	case !proof.Verify(m.cfg.Signatures, m.cell()):
		return host.Drop(DropSignature, "a beacon that %s has not signed for this cell", from)
	}
	return nil
}

func (m *mesh) cell() wire.Cell {
	return wire.Cell{Federation: m.cfg.Federation, Name: m.cfg.Mesh.Cell}
}
