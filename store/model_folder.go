package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	modelPrefix         = "model-"
	modelSuffix         = ".safetensors"
	recordSuffix        = ".record"
	modelRecordVersion  = 1                             // format version of the record of a model
	modelRecordBodySize = sha256.Size + sha256.Size + 8 // digest | SHA-256 of the model file | size of the model file
)

// ModelFolder is a folder of models, named model-00000007.safetensors and so on. Each model has a small record file,
// which contains the digest that identifies the model in the federation and the SHA-256 of the model file. The record
// is written first. A model counts as stored once both files exist.
type ModelFolder struct {
	disk Disk
	dir  string
}

// ModelInfo describes a stored model.
type ModelInfo struct {
	Version    uint64
	Digest     [32]byte          // digest that was passed to Put
	Size       int64             // size of the file in bytes
	Metadata   map[string]string // metadata from the header of the file
	fileSHA256 [32]byte
}

// OpenModelFolder opens the folder dir. It creates dir if the parent exists.
func (d Disk) OpenModelFolder(dir string) (*ModelFolder, error) {
	if err := d.MakeDir(dir); err != nil {
		return nil, err
	}
	return &ModelFolder{disk: d, dir: dir}, nil
}

// Path returns the path of the file for a version, whether or not it exists.
func (m *ModelFolder) Path(version uint64) string {
	return filepath.Join(m.dir, fmt.Sprintf("%s%08d%s", modelPrefix, version, modelSuffix))
}

func modelRecordPath(modelPath string) string {
	return strings.TrimSuffix(modelPath, modelSuffix) + recordSuffix
}

// Put stores a safetensors file under the given version. The first piece must contain the header. digest is the address
// of the model in the federation; it may differ from the SHA-256 of the file. If durable is false, a power cut may tear
// or remove the file; Get detects this. Storing the same digest again succeeds. A different digest, or an unreadable
// record of an existing file, returns ErrDigestConflict; see SetAsideModel.
func (m *ModelFolder) Put(version uint64, digest [32]byte, durable bool, pieces ...[]byte) error {
	size, sum := int64(0), sha256.New()
	for _, p := range pieces {
		size += int64(len(p))
		_, _ = sum.Write(p) // never fails
	}
	if _, err := readSafetensorsMetadata(bytes.NewReader(pieces[0]), size); err != nil {
		return fmt.Errorf("model version %d: %w", version, err)
	}
	path := m.Path(version)
	if _, err := m.disk.Lstat(path); err == nil {
		if old, err := m.readModelRecord(version); err != nil || old.Digest != digest {
			return fmt.Errorf("store: model version %d with digest %x, but digest %x is stored: %w", version, digest,
				old.Digest,
				ErrDigestConflict)
		}
	}
	body := binary.LittleEndian.AppendUint64(sum.Sum(digest[:]), uint64(size))
	if err := m.disk.saveRecord(modelRecordPath(path), modelRecordVersion, body, durable); err != nil {
		return err
	}
	return m.disk.replaceFile(path, pieces, 0o600, durable)
}

// readModelRecord reads the record of a model. The result has no metadata.
func (m *ModelFolder) readModelRecord(version uint64) (ModelInfo, error) {
	path := modelRecordPath(m.Path(version))
	v, body, err := m.disk.LoadRecord(path, modelRecordBodySize)
	if err != nil {
		return ModelInfo{}, err
	}
	if v != modelRecordVersion {
		return ModelInfo{}, &FormatVersionError{path, v, modelRecordVersion}
	}
	if len(body) != modelRecordBodySize {
		return ModelInfo{}, &CorruptError{path, "the file does not contain a model record"}
	}
	info := ModelInfo{Version: version, Size: int64(binary.LittleEndian.Uint64(body[2*sha256.Size:]))}
	copy(info.Digest[:], body)
	copy(info.fileSHA256[:], body[sha256.Size:])
	return info, nil
}

// Versions returns the versions of all model files, including damaged ones, in ascending order.
func (m *ModelFolder) Versions() ([]uint64, error) { return m.versionsWithSuffix(modelSuffix) }

// List returns the stored models, sorted by version. It reads only their headers. If some models are damaged, it
// returns all other models and an error that names the damaged models.
func (m *ModelFolder) List() ([]ModelInfo, error) {
	versions, err := m.versionsWithSuffix(modelSuffix)
	if err != nil {
		return nil, err
	}
	var infos []ModelInfo
	var problems []error
	for _, v := range versions {
		info, err := m.readModelInfo(v)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		infos = append(infos, info)
	}
	return infos, errors.Join(problems...)
}

// Latest describes the model with the highest version. It returns ErrNoModel if the folder is empty. It does not fall
// back to an older model if the newest model is damaged.
func (m *ModelFolder) Latest() (ModelInfo, error) {
	versions, err := m.versionsWithSuffix(modelSuffix)
	if err != nil {
		return ModelInfo{}, err
	}
	if len(versions) == 0 {
		return ModelInfo{}, fmt.Errorf("store: %w in %s", ErrNoModel, m.dir)
	}
	return m.readModelInfo(versions[len(versions)-1])
}

// Get returns the verified file of a version. It returns ErrNoModel if the version does not exist.
func (m *ModelFolder) Get(version uint64) ([]byte, error) {
	path := m.Path(version)
	file, err := m.disk.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("store: %w: version %d in %s%s", ErrNoModel, version, m.dir, m.describeVersions())
	}
	if err != nil {
		return nil, explainFileError("read", path, err)
	}
	info, err := m.readModelRecord(version)
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(file); !bytes.Equal(sum[:], info.fileSHA256[:]) {
		return nil, &CorruptError{path, "SHA-256 mismatch"}
	}
	return file, nil
}

// describeVersions lists the stored versions, for an error message.
func (m *ModelFolder) describeVersions() string {
	all, err := m.Versions()
	if err != nil || len(all) == 0 {
		return ""
	}
	var text strings.Builder
	for i := 0; i < len(all); {
		first := i
		for i++; i < len(all) && all[i] == all[i-1]+1; i++ {
		}
		if text.WriteString(", "); i-first > 1 {
			fmt.Fprintf(&text, "%d to %d", all[first], all[i-1])
		} else {
			fmt.Fprint(&text, all[first])
		}
	}
	return "; available versions:" + text.String()[1:]
}

// versionsWithSuffix returns the sorted versions of all files with this suffix.
func (m *ModelFolder) versionsWithSuffix(suffix string) ([]uint64, error) {
	names, err := m.disk.ReadDir(m.dir)
	if err != nil {
		return nil, explainFileError("list", m.dir, err)
	}
	return modelVersionsInNames(names, suffix), nil
}

// modelVersionsInNames returns the sorted versions of all model files in names with this suffix.
func modelVersionsInNames(names []fs.DirEntry, suffix string) (versions []uint64) {
	for _, name := range names {
		digits, hasPrefix := strings.CutPrefix(name.Name(), modelPrefix)
		digits, hasSuffix := strings.CutSuffix(digits, suffix)
		v, err := strconv.ParseUint(digits, 10, 64)
		if hasPrefix && hasSuffix && err == nil && name.Name() == fmt.Sprintf("%s%08d%s", modelPrefix, v, suffix) {
			versions = append(versions, v)
		}
	}
	slices.Sort(versions)
	return versions
}
