package coordinator

import (
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// slotModel is the model of a round as its slot holds it, with the state of the optimiser that made it.
type slotModel struct {
	run               wire.RunID
	version           wire.ModelVersion
	hash              wire.Digest
	safetensorsPieces [][]byte // safetensors, in pieces; one piece if it was read
	optimizerState    []byte   // nil if there is none: see packState
	mustBeDurable     bool     // it is rolled out: a power cut must not take it from the archive
}

// slotHead is the length of what stands before a model's file: run, version, hash and the file's length.
const slotHead = 8 + 8 + len(wire.Digest{}) + 8

// saveSlot writes a model into the slot that the present one does not use. It counts with the journal that names it.
func (d *stateFolder) saveSlot(m *slotModel) error {
	head := binary.LittleEndian.AppendUint64(make([]byte, 0, slotHead), uint64(m.run))
	head = binary.LittleEndian.AppendUint64(head, uint64(m.version))
	head = append(head, m.hash[:]...)
	length := 0
	for _, p := range m.safetensorsPieces {
		length += len(p)
	}
	head = binary.LittleEndian.AppendUint64(head, uint64(length))
	d.unjournaledModel = wire.Digest{}
	err := d.modelSlots.Write(slotVersion, slices.Concat([][]byte{head}, m.safetensorsPieces,
		[][]byte{m.optimizerState})...)
	if err == nil {
		d.unjournaledModel = m.hash
	}
	return err
}

// loadSlot returns the run's model with that hash from its slot, which no write touches from now on. The error is
// ErrNoModel if the slots hold others, and a *CorruptError if the model's slot may be the one that is damaged.
func (d *stateFolder) loadSlot(run wire.RunID, version wire.ModelVersion, hash wire.Digest) (*slotModel, error) {
	var m *slotModel
	_, err := d.modelSlots.Load(maxModel, func(s store.SavedRecord) bool {
		x, ok := parseSlot(s)
		if ok = ok && x.run == run && x.version == version && x.hash == hash; ok {
			m = x
		}
		return ok
	})
	if errors.Is(err, store.ErrNoRecord) {
		err = store.ErrNoModel
	}
	return m, err
}

func parseSlot(s store.SavedRecord) (*slotModel, bool) {
	b := s.Body
	if s.Version != slotVersion || len(b) < slotHead {
		return nil, false
	}
	m := &slotModel{run: wire.RunID(binary.LittleEndian.Uint64(b)),
		version: wire.ModelVersion(binary.LittleEndian.Uint64(b[8:])), hash: wire.Digest(b[16:])}
	length := binary.LittleEndian.Uint64(b[slotHead-8:])
	if b = b[slotHead:]; length > uint64(len(b)) {
		return nil, false
	}
	if m.safetensorsPieces = [][]byte{b[:length:length]}; uint64(len(b)) > length {
		m.optimizerState = b[length:]
	}
	return m, true
}

// syncArchive is how often a model of the archive is synced at most. The system writes the others by itself, soon: of
// models that replace each other faster a power cut takes a few, and not the present one, which its slot has.
const syncArchive = 10 * time.Second

// archive stores a model, and the state of the optimiser with it, among those of its run.
func (w *modelState) archive(m *slotModel) error {
	now := w.now()
	durable := m.mustBeDurable || now.Sub(w.lastArchiveSyncAt) >= syncArchive
	if m.optimizerState != nil {
		if err := w.stateFolder.models.PutOptimizerState(uint64(m.version), m.hash, m.optimizerState,
			durable); err != nil {
			return err
		}
	}
	err := w.stateFolder.saveModel(m, durable, w.cfg.Logger)
	if err == nil && durable {
		w.lastArchiveSyncAt = now
	}
	return err
}

// archivePendingModel puts the present model into the archive if the process before has not: what begins from it finds
// it there.
func (w *modelState) archivePendingModel() error {
	m := w.unarchivedModel
	if w.unarchivedModel = nil; m == nil {
		return nil
	}
	return w.archive(m)
}

// extractModelVector returns the vector of a model's file if it has that hash, or nil.
func extractModelVector(file []byte, hash wire.Digest, schema wire.Schema) []byte {
	m, err := decodeModel("", file)
	if err != nil || !m.matchesSchema(schema) {
		return nil
	}
	if data := m.encodeVector(schema); wire.BlobDigest(data) == hash {
		return data
	}
	return nil
}
