package part

import "github.com/fedmesh/fedmesh/wire"

// LocalUpdate is the agent's contribution to a round: the change of the model parameters or the statistics of the
// columns. Package training computes the update, and package upload encodes, stores and sends it.
type LocalUpdate struct {
	wire.Update
	Epoch        wire.Epoch
	Run          wire.RunID
	Round        wire.RoundID
	PayloadBytes []byte // encoded content of the update
	// sequence number of the request; on disk, an update replaces only updates with lower numbers
	RequestSequence uint64
	SaveAttempted   bool // true after saving to disk succeeded or failed
	// IsCheapToRecompute is true if the update is not saved but computed again after a restart.
	IsCheapToRecompute bool

	// UncompressedChange is the change before encoding, including the unsent part of earlier updates.
	// UncompressedChange and SchemaHash are set only if the codec uses error feedback.
	UncompressedChange []float32
	SchemaHash         wire.Digest
	ResidualLost       bool // true if the unsent part of earlier updates was discarded
}

// SetPayload sets the encoded update and computes its manifest.
func (u *LocalUpdate) SetPayload(p []byte, schema wire.Digest) (err error) {
	u.PayloadBytes = p
	u.PayloadManifest, err = wire.NewManifest(p, schema)
	return err
}
