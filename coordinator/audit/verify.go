package audit

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"

	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// SignedHead is a chain head from the history, with the round for which it was signed.
type SignedHead struct {
	Run   wire.RunID
	Round wire.RoundID
	Head  ChainHead
}

// VerificationReport is the result of verifying a log.
type VerificationReport struct {
	FirstEntry, LastEntry uint64 // numbers of the first and the last entry; older files may be missing
	VerifiedHeads         int    // number of signed heads that match the log
	UnsignedRounds        int    // number of rounds without a head after the first signed head
	// LastVerifiedEntry is the last entry covered by a signature of the current key. Anyone with write access to the
	// folder can have forged later entries.
	LastVerifiedEntry uint64
}

// lineError identifies a line of the log that is invalid, and the reason.
type lineError struct {
	path string
	line int
	why  string
}

func (e *lineError) Error() string { return fmt.Sprintf("%s:%d: %s", e.path, e.line, e.why) }

// Verify verifies the log of a state folder against the signed heads of its history. heads are in order, with nil for a
// round without a head. key is the coordinator's current public key; the log contains earlier ones.
//
// The error identifies the first mismatch: a changed or missing entry, a signed head that is not in the log, or a head
// that no key of this coordinator signed.
func Verify(state string, federation wire.FederationName, key ed25519.PublicKey, heads iter.Seq2[*SignedHead,
	error]) (VerificationReport,
	error) {
	var r VerificationReport
	signed := map[uint64]*SignedHead{} // newest head for each entry number
	for h, err := range heads {
		switch {
		case err != nil:
			return r, err
		case h != nil:
			signed[h.Head.EntryCount] = h
		case len(signed) > 0:
			r.UnsignedRounds++
		}
	}
	keys, err := r.verifyChain(state, signed)
	if err != nil {
		return r, err
	}
	return r, r.verifyHeadSignatures(federation, key, keys, signed)
}

// verifyChain compares each line with the hash in the next line, and the heads with the lines. It returns the public
// keys in the log by entry number.
func (r *VerificationReport) verifyChain(state string, signed map[uint64]*SignedHead) (map[uint64]ed25519.PublicKey,
	error) {
	names, err := FileNames(store.LocalDisk, state)
	if err != nil {
		return nil, err
	}
	keys := map[uint64]ed25519.PublicKey{}
	var previous []byte
	for _, name := range names {
		path := filepath.Join(state, Folder, name)
		for n, line := range linesOfFile(path, &err) {
			var e Entry
			if err := json.Unmarshal(line, &e); err != nil {
				return nil, &lineError{path, n, err.Error()}
			}
			why := ""
			h := signed[e.Number]
			switch hash := hashOfLine(line); {
			case r.LastEntry > 0 && e.Number != r.LastEntry+1:
				why = fmt.Sprintf("entry %d follows entry %d: entries are missing or out of order", e.Number,
					r.LastEntry)
			case r.LastEntry > 0 && !bytes.Equal(e.PreviousHash, previous):
				why = fmt.Sprintf("entry %d was changed after entry %d was written", r.LastEntry, e.Number)
			case h != nil && !bytes.Equal(h.Head.Hash, hash):
				why = fmt.Sprintf("entry %d differs from the entry that the coordinator signed in round %d of run %d",
					e.Number, h.Round,
					h.Run)
			default:
				previous = hash
			}
			if why != "" {
				return nil, &lineError{path, n, why}
			}
			if r.LastEntry == 0 {
				r.FirstEntry = e.Number
			}
			r.LastEntry = e.Number
			if e.Event == Started && len(e.PublicKey) == ed25519.PublicKeySize {
				keys[e.Number] = ed25519.PublicKey(e.PublicKey)
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// linesOfFile yields the complete lines of a file with their line numbers.
func linesOfFile(path string, failed *error) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		f, err := os.Open(path)
		if err != nil {
			*failed = err
			return
		}
		defer f.Close()
		in := bufio.NewReader(f)
		for n := 1; ; n++ {
			line, err := in.ReadBytes('\n')
			if errors.Is(err, io.EOF) { // Ignore an incomplete last line, which is still being written.
				return
			}
			if err != nil {
				*failed = err
				return
			}
			if !yield(n, line[:len(line)-1]) {
				return
			}
		}
	}
}

// verifyHeadSignatures verifies the signatures of the heads. A head must be signed with the current key, or with an
// older key that is recorded in an entry covered by a signature of the current key.
func (r *VerificationReport) verifyHeadSignatures(federation wire.FederationName, present ed25519.PublicKey,
	keys map[uint64]ed25519.PublicKey,
	signed map[uint64]*SignedHead) error {
	by := func(key ed25519.PublicKey, h *SignedHead) bool {
		return ed25519.Verify(key, h.Head.bytesToSign(federation, h.Run, h.Round), h.Head.Signature)
	}
	var earlier []*SignedHead
	for n, h := range signed {
		switch {
		case n > r.LastEntry:
			return fmt.Errorf(
				"the log ends with entry %d, but it already contained entry %d when round %d of run %d ended: "+
					"entries were removed", r.LastEntry, n,
				h.Round, h.Run)
		case n < r.FirstEntry: // the file with this entry was moved away
		case by(present, h):
			r.VerifiedHeads++
			r.LastVerifiedEntry = max(r.LastVerifiedEntry, n)
		default:
			earlier = append(earlier, h)
		}
	}
	for _, h := range earlier {
		known := false
		for n, key := range keys {
			known = known || n <= r.LastVerifiedEntry && by(key, h)
		}
		if !known {
			return fmt.Errorf(
				"the signature of the audit log in round %d of run %d was not made with any key of this coordinator",
				h.Round, h.Run)
		}
		r.VerifiedHeads++
	}
	return nil
}
