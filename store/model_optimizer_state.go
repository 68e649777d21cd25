package store

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"strings"
)

const (
	optimizerStateSuffix  = ".optimizer"
	optimizerStateVersion = 1 // of the record: digest of the model | state
)

func optimizerStatePath(modelPath string) string {
	return strings.TrimSuffix(modelPath, modelSuffix) + optimizerStateSuffix
}

// PutOptimizerState stores durably the state of the optimiser that made the model of that version and digest, in the
// place of another one.
func (m *ModelFolder) PutOptimizerState(version uint64, digest [32]byte, state []byte, durable bool) error {
	return m.disk.saveRecord(optimizerStatePath(m.Path(version)), optimizerStateVersion, slices.Concat(digest[:],
		state),
		durable)
}

// OptimizerState returns what PutOptimizerState stored of the model of that version and digest, of at most that many
// bytes; ErrNoRecord if there is none. The state of another model, as after a change of a file by hand, is a
// *CorruptError.
func (m *ModelFolder) OptimizerState(version uint64, digest [32]byte, most int) ([]byte, error) {
	path := optimizerStatePath(m.Path(version))
	v, body, err := m.disk.LoadRecord(path, sha256.Size+most)
	switch {
	case err != nil:
		return nil, err
	case v != optimizerStateVersion:
		return nil, &FormatVersionError{path, v, optimizerStateVersion}
	case !bytes.HasPrefix(body, digest[:]):
		return nil, &CorruptError{path, "it is not of the model of this version"}
	}
	return body[sha256.Size:], nil
}
