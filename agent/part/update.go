package part

import "github.com/fedmesh/fedmesh/wire"

// LocalUpdate is the agent's contribution to a round: the change of the model by its local steps, or its part of the
// statistics. Package training computes it, and package upload packs, stores and sends it.
type LocalUpdate struct {
	wire.Update
	Epoch           wire.Epoch
	Run             wire.RunID
	Round           wire.RoundID
	PayloadBytes    []byte // the payload
	RequestSequence uint64 // of the request for the update; on disk, an update replaces only earlier ones
	SaveAttempted   bool   // on disk, or the disk could not take it
	// IsCheapToRecompute: the update is not saved. After a restart it is computed again.
	IsCheapToRecompute bool

	// If the codec keeps a residual: the change with the residual of earlier updates, before it was packed, and the
	// meaning of its elements.
	UncompressedChange []float32
	SchemaHash         wire.Digest
	ResidualLost       bool // the residual of earlier updates was dropped
}

// SetPayload makes p the payload.
func (u *LocalUpdate) SetPayload(p []byte, schema wire.Digest) (err error) {
	u.PayloadBytes = p
	u.PayloadManifest, err = wire.NewManifest(p, schema)
	return err
}
