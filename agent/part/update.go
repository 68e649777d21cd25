package part

import "github.com/fedmesh/fedmesh/wire"

// LocalUpdate is the agent's contribution to a round: the change of the model by its local steps, or its statistics.
// Package training computes it. Package upload encodes, stores and sends it.
type LocalUpdate struct {
	wire.Update
	Epoch           wire.Epoch
	Run             wire.RunID
	Round           wire.RoundID
	PayloadBytes    []byte // encoded payload
	RequestSequence uint64 // sequence number of the request; on disk, an update replaces only earlier ones
	SaveAttempted   bool   // the update is on disk, or saving it has failed
	// IsCheapToRecompute means that the update is not saved but computed again after a restart.
	IsCheapToRecompute bool

	// UncompressedChange is the change plus the residual of earlier updates, before encoding. It and SchemaHash are set
	// only if the codec keeps a residual.
	UncompressedChange []float32
	SchemaHash         wire.Digest
	ResidualLost       bool // the residual of earlier updates was dropped
}

// SetPayload sets the payload and its manifest.
func (u *LocalUpdate) SetPayload(p []byte, schema wire.Digest) (err error) {
	u.PayloadBytes = p
	u.PayloadManifest, err = wire.NewManifest(p, schema)
	return err
}
