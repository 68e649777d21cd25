package runs

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// SlotModel is the model of a round in its slot, with the state of the server's optimiser after that round.
type SlotModel struct {
	Run               wire.RunID
	Version           wire.ModelVersion
	Hash              wire.Digest
	SafetensorsPieces [][]byte // the safetensors file; one piece if it was read
	OptimizerState    []byte   // as the coordinator encodes it; nil without an optimiser that has a state
	MustBeDurable     bool     // it is rolled out: a power cut must not take it from the archive
}

// slotHead is the length of what stands before a model's file: run, version, hash and the file's length.
const slotHead = 8 + 8 + len(wire.Digest{}) + 8

// SaveModelSlot writes a model into the slot that the present model does not use. The model is in force with the
// journal that names it. The slot is protected only by SaveJournalRecord, when the journal names the model; until then
// the next SaveModelSlot overwrites it and not the model in force.
func (d *StateFolder) SaveModelSlot(m *SlotModel) error {
	head := binary.LittleEndian.AppendUint64(make([]byte, 0, slotHead), uint64(m.Run))
	head = binary.LittleEndian.AppendUint64(head, uint64(m.Version))
	head = append(head, m.Hash[:]...)
	length := 0
	for _, p := range m.SafetensorsPieces {
		length += len(p)
	}
	head = binary.LittleEndian.AppendUint64(head, uint64(length))
	d.unjournaledModel = wire.Digest{}
	err := d.ModelSlots.Write(slices.Concat([][]byte{head}, m.SafetensorsPieces,
		[][]byte{m.OptimizerState})...)
	if err == nil {
		d.unjournaledModel = m.Hash
	}
	return err
}

// LoadModelSlot returns the model with this hash from its slot, which no write overwrites from now on. The error is
// store.ErrNoModel if the slots have other models, and a store.CorruptError if the model's slot may be the damaged one.
func (d *StateFolder) LoadModelSlot(run wire.RunID, version wire.ModelVersion, hash wire.Digest) (*SlotModel, error) {
	var m *SlotModel
	_, err := d.ModelSlots.Load(func(body []byte) bool {
		x, ok := parseModelSlot(body)
		if ok = ok && x.Run == run && x.Version == version && x.Hash == hash; ok {
			m = x
		}
		return ok
	})
	if errors.Is(err, store.ErrNoRecord) {
		err = store.ErrNoModel
	}
	return m, err
}

func parseModelSlot(b []byte) (*SlotModel, bool) {
	if len(b) < slotHead {
		return nil, false
	}
	m := &SlotModel{Run: wire.RunID(binary.LittleEndian.Uint64(b)),
		Version: wire.ModelVersion(binary.LittleEndian.Uint64(b[8:])), Hash: wire.Digest(b[16:])}
	length := binary.LittleEndian.Uint64(b[slotHead-8:])
	if b = b[slotHead:]; length > uint64(len(b)) {
		return nil, false
	}
	if m.SafetensorsPieces = [][]byte{b[:length:length]}; uint64(len(b)) > length {
		m.OptimizerState = b[length:]
	}
	return m, true
}

// ExtractModelVector returns the vector of a model file if it has this hash, otherwise nil.
func ExtractModelVector(file []byte, hash wire.Digest, schema wire.TensorSchema) []byte {
	m, err := DecodeModel("", file)
	if err != nil || !m.MatchesSchema(schema) {
		return nil
	}
	if data := m.EncodeVector(schema); wire.BlobDigest(data) == hash {
		return data
	}
	return nil
}
