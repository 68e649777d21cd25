package upload

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/wire"
)

// Descriptions of writes to the state folder (see state.RetriedWrite), which the operator sees while a write fails.
const (
	updateWrite   = "save the update"
	updateRemoval = "remove the old update"
	// residualWrite must succeed before the update's file is removed, because the update's file also contains the
	// residual.
	residualWrite = "save the unsent residual"
)

var littleEndian = binary.LittleEndian

// updateStore stores one update on disk until its round has ended. It is safe for concurrent use and never replaces an
// update by an earlier one.
type updateStore struct {
	slots *state.FileSlots

	mu             sync.Mutex
	newestSequence uint64 // updates with a lower sequence number are not written
}

func (s *updateStore) saveIfNewest(u *part.LocalUpdate) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u.RequestSequence < s.newestSequence {
		return nil // The update's round is over.
	}
	s.newestSequence = u.RequestSequence
	return saveUpdate(s.slots, u)
}

// discardEarlier ensures that updates with a lower sequence number are no longer written to disk.
func (s *updateStore) discardEarlier(sequence uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newestSequence = sequence
}

// removeUpdate removes the saved update and then calls removeModel, which removes the file of the round's model. It
// also ensures that earlier updates are no longer saved.
func (s *updateStore) removeUpdate(sequence uint64, removeModel func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newestSequence = sequence
	return errors.Join(s.slots.Clear(), removeModel())
}

// saveUpdate saves an update to disk. If the codec keeps a residual, the file also contains the uncompressed elements
// and their schema hash.
func saveUpdate(s *state.FileSlots, u *part.LocalUpdate) error {
	body := u.Body()
	b := littleEndian.AppendUint64(nil, uint64(u.Epoch))
	b = littleEndian.AppendUint64(b, uint64(u.Run))
	b = littleEndian.AppendUint64(b, uint64(u.Round))
	b = littleEndian.AppendUint32(b, uint32(len(body)))
	var uncompressed []byte
	if u.UncompressedChange != nil {
		uncompressed = wire.AppendVector(u.SchemaHash[:len(u.SchemaHash):len(u.SchemaHash)], u.UncompressedChange)
	}
	return s.Save(append(b, body...), u.PayloadBytes, uncompressed)
}

// loadUpdate returns the update that an earlier process has saved, or nil if there is none.
func loadUpdate(s *state.FileSlots) (u *part.LocalUpdate, err error) {
	err = s.Load(func(b []byte) error {
		const head = 28
		if len(b) < head || int64(littleEndian.Uint32(b[head-4:])) > int64(len(b)-head) {
			return errors.New("the file is too short")
		}
		n := head + int(littleEndian.Uint32(b[head-4:]))
		body, err := wire.DecodeUpdate(b[head:n])
		if err != nil {
			return err
		}
		end := int64(n) + int64(body.PayloadManifest.BlobLength)
		_, kept := body.PayloadManifest.Codec.TopKShare()
		if end != int64(len(b)) && !kept || end > int64(len(b)) {
			return fmt.Errorf("the payload has %d bytes instead of %d", len(b)-n, body.PayloadManifest.BlobLength)
		}
		loaded := &part.LocalUpdate{Update: body, Epoch: wire.Epoch(littleEndian.Uint64(b)),
			Run: wire.RunID(littleEndian.Uint64(b[8:])), Round: wire.RoundID(littleEndian.Uint64(b[16:])),
			PayloadBytes: b[n:end], SaveAttempted: true}
		if rest := b[end:]; len(rest) > 0 {
			if len(rest) <= len(loaded.SchemaHash) {
				return fmt.Errorf("%d unexpected bytes after the payload", len(rest))
			}
			loaded.SchemaHash = wire.Digest(rest)
			if loaded.UncompressedChange, err = decodeVector(rest[len(loaded.SchemaHash):]); err != nil {
				return err
			}
		}
		u = loaded
		return nil
	})
	return u, err
}
