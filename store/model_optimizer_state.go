package store

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"strings"
)

const (
	optimizerStateSuffix  = ".optimizer"
	optimizerStateVersion = 1 // format version of the record with model digest and optimiser state
)

func optimizerStatePath(modelPath string) string {
	return strings.TrimSuffix(modelPath, modelSuffix) + optimizerStateSuffix
}

// PutOptimizerState stores the state of the server optimiser for the model with this version and digest. It replaces a
// previous state of this version.
func (m *ModelFolder) PutOptimizerState(version uint64, digest [32]byte, state []byte, durable bool) error {
	return m.disk.saveRecord(optimizerStatePath(m.Path(version)), optimizerStateVersion, slices.Concat(digest[:],
		state),
		durable)
}

// OptimizerState returns the optimiser state of the model with this version and digest. most limits the length of the
// state in bytes. It returns ErrNoRecord if no state is stored, and a *CorruptError if the state belongs to a different
// model.
func (m *ModelFolder) OptimizerState(version uint64, digest [32]byte, most int) ([]byte, error) {
	path := optimizerStatePath(m.Path(version))
	v, body, err := m.disk.LoadRecord(path, sha256.Size+most)
	switch {
	case err != nil:
		return nil, err
	case v != optimizerStateVersion:
		return nil, &FormatVersionError{path, v, optimizerStateVersion}
	case !bytes.HasPrefix(body, digest[:]):
		return nil, &CorruptError{path, "the optimizer state belongs to a different model"}
	}
	return body[sha256.Size:], nil
}
