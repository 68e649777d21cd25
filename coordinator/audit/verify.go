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

// Signed is a head of the history, with the round for which it was signed.
type Signed struct {
	Run   wire.RunID
	Round wire.RoundID
	Head  Head
}

// Report is what a log was found to hold.
type Report struct {
	First, Last uint64 // numbers of entries; the first is 1 unless older files were taken away
	Heads       int    // that the coordinator signed, of different entries, and that agree with the log
	Unsigned    int    // rounds without a head behind one that has it
	// Covered is the last entry for which the present key stands: who could write the folder can have made later ones.
	Covered uint64
}

// lineError says which entry is not as it was written.
type lineError struct {
	path string
	line int
	why  string
}

func (e *lineError) Error() string { return fmt.Sprintf("%s:%d: %s", e.path, e.line, e.why) }

// Verify reads the log of a state folder, and the heads of its history in their order, nil for a round without. The
// error says where the log is not what was written: an entry whose hash the next one does not have, a number that is
// missing, a head that the log does not have, or that none of its coordinator's keys has signed. key is the present
// public key; the log names earlier ones.
func Verify(state string, federation wire.Federation, key ed25519.PublicKey, heads iter.Seq2[*Signed, error]) (Report,
	error) {
	var r Report
	signed := map[uint64]*Signed{} // the newest of each entry
	for h, err := range heads {
		switch {
		case err != nil:
			return r, err
		case h != nil:
			signed[h.Head.N] = h
		case len(signed) > 0:
			r.Unsigned++
		}
	}
	keys, err := r.chain(state, signed)
	if err != nil {
		return r, err
	}
	return r, r.signatures(federation, key, keys, signed)
}

// chain holds each line against the one before, and the heads against the lines. It returns the keys that the log
// names, by entry.
func (r *Report) chain(state string, signed map[uint64]*Signed) (map[uint64]ed25519.PublicKey, error) {
	names, err := Files(store.Machine, state)
	if err != nil {
		return nil, err
	}
	keys := map[uint64]ed25519.PublicKey{}
	var previous []byte
	for _, name := range names {
		path := filepath.Join(state, Folder, name)
		for n, line := range lines(path, &err) {
			var e Entry
			if err := json.Unmarshal(line, &e); err != nil {
				return nil, &lineError{path, n, err.Error()}
			}
			why := ""
			h := signed[e.N]
			switch hash := hashOf(line); {
			case r.Last > 0 && e.N != r.Last+1:
				why = fmt.Sprintf("entry %d comes after entry %d", e.N, r.Last)
			case r.Last > 0 && !bytes.Equal(e.Previous, previous):
				why = fmt.Sprintf("entry %d was changed after entry %d was written", r.Last, e.N)
			case h != nil && !bytes.Equal(h.Head.Hash, hash):
				why = fmt.Sprintf("entry %d is not the one that was signed in round %d of run %d", e.N, h.Round, h.Run)
			default:
				previous = hash
			}
			if why != "" {
				return nil, &lineError{path, n, why}
			}
			if r.Last == 0 {
				r.First = e.N
			}
			r.Last = e.N
			if e.Event == Started && len(e.Key) == ed25519.PublicKeySize {
				keys[e.N] = ed25519.PublicKey(e.Key)
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// lines yields the whole lines of a file with their numbers.
func lines(path string, failed *error) iter.Seq2[int, []byte] {
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
			if errors.Is(err, io.EOF) { // what has no end yet is being written
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

// signatures checks those of the heads: by the present key, or by one that an entry names for which the present key
// stands.
func (r *Report) signatures(federation wire.Federation, present ed25519.PublicKey, keys map[uint64]ed25519.PublicKey,
	signed map[uint64]*Signed) error {
	by := func(key ed25519.PublicKey, h *Signed) bool {
		return ed25519.Verify(key, h.Head.signed(federation, h.Run, h.Round), h.Head.Signature)
	}
	var earlier []*Signed
	for n, h := range signed {
		switch {
		case n > r.Last:
			return fmt.Errorf("the log ends with entry %d, but had %d when round %d of run %d ended", r.Last, n,
				h.Round, h.Run)
		case n < r.First: // its file was moved away
		case by(present, h):
			r.Heads++
			r.Covered = max(r.Covered, n)
		default:
			earlier = append(earlier, h)
		}
	}
	for _, h := range earlier {
		known := false
		for n, key := range keys {
			known = known || n <= r.Covered && by(key, h)
		}
		if !known {
			return fmt.Errorf("no key of this coordinator has signed the head of round %d of run %d", h.Round, h.Run)
		}
		r.Heads++
	}
	return nil
}
