package runs

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// SlotModel is the content of a model slot: a model and the state of the server optimiser after its round.
type SlotModel struct {
	Run               wire.RunID
	Version           wire.ModelVersion
	Hash              wire.Digest
	SafetensorsPieces [][]byte // pieces of the safetensors file; one piece after reading
	OptimizerState    []byte   // encoded state of the optimiser and the rule; nil if they are stateless
	MustBeDurable     bool     // true if the model is rolled out and must survive a power cut
}

// slotHead is the length of the header before the model file: run, version, hash and file length.
const slotHead = 8 + 8 + len(wire.Digest{}) + 8

// SaveModelSlot writes a model into the slot that does not contain the current model. The model becomes current when
// SaveJournalRecord writes a journal that refers to it. Until then, the next SaveModelSlot overwrites the same slot.
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

// LoadModelSlot returns the model with the given hash from its slot and protects that slot from being overwritten. The
// error is store.ErrNoModel if the slots contain other models, and a store.CorruptError if the model may be in a
// damaged slot.
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

// ExtractModelVector returns the parameter vector of a model file. It returns nil if the file is invalid or the hash
// does not match.
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
