package store

import (
	"errors"
	"io"
	"os"
)

// readModelInfo describes a stored model from its record and its header. It does not read or verify the tensors.
func (m *ModelFolder) readModelInfo(version uint64) (info ModelInfo, err error) {
	path := m.Path(version)
	f, err := m.disk.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return ModelInfo{}, explainFileError("open", path, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err = m.readModelRecord(version)
	if err != nil {
		return ModelInfo{}, err
	}
	stat, err := f.Stat()
	if err != nil {
		return ModelInfo{}, explainFileError("open", path, err)
	}
	if stat.Size() != info.Size {
		return ModelInfo{}, &CorruptError{path, "the size of the model file does not match the record"}
	}
	info.Metadata, err = readSafetensorsMetadata(f, info.Size)
	if err != nil {
		return ModelInfo{}, &CorruptError{path, err.Error()}
	}
	return info, nil
}

// readSafetensorsMetadata validates the header of a safetensors file with size bytes and returns its metadata.
func readSafetensorsMetadata(f io.ReaderAt, size int64) (map[string]string, error) {
	var length [8]byte
	if _, err := f.ReadAt(length[:], 0); err != nil {
		return nil, err
	}
	n, err := safetensorsHeaderLen(length[:], size)
	if err != nil {
		return nil, err
	}
	header := make([]byte, n)
	if _, err := f.ReadAt(header, 8); err != nil {
		return nil, err
	}
	_, metadata, err := parseSafetensorsHeader(header, size-8-n)
	return metadata, err
}
