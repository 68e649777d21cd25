package runs

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// StoredModel is the content of a model file.
type StoredModel struct {
	Version         uint64
	tensors         map[string]store.Tensor // tensors by name, because files differ in their order
	Metadata        map[string]string
	Standardization wire.Standardization // standardisation of the columns; empty if the file contains none
}

// ReadModel reads and decodes a stored model. models verifies the file's SHA-256.
func (d *StateFolder) ReadModel(models *store.ModelFolder, version uint64) (*StoredModel, error) {
	file, err := models.Get(version)
	if err != nil {
		return nil, err
	}
	m, err := DecodeModel(models.Path(version), file)
	if err != nil {
		return nil, err
	}
	m.Version = version
	return m, nil
}

// ReadModelOfRun reads a stored model of any run.
func (d *StateFolder) ReadModelOfRun(run wire.RunID, version uint64) (*StoredModel, error) {
	models, err := d.OpenModelsOfRun(run)
	if err != nil {
		return nil, err
	}
	return d.ReadModel(models, version)
}

// ReadModelFile reads a model from a file at any path.
func (d *StateFolder) ReadModelFile(path string) (*StoredModel, error) {
	file, err := d.Disk.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return DecodeModel(path, file)
}

// DecodeModel decodes a safetensors file of this program, or of another program with the same tensor names. path is
// used in errors.
func DecodeModel(path string, file []byte) (*StoredModel, error) {
	tensors, meta, err := store.DecodeSafetensors(file)
	if err != nil {
		return nil, &store.CorruptError{Path: path, Reason: err.Error()}
	}
	m := &StoredModel{Metadata: meta, tensors: map[string]store.Tensor{}}
	for _, t := range tensors {
		m.tensors[t.Name] = t
	}
	if text := meta["format_version"]; text != "" { // the key is absent in files of other programs
		v, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return nil, &store.CorruptError{Path: path, Reason: "invalid format_version " + strconv.Quote(text)}
		}
		if v != modelfile.FormatVersion {
			return nil, &store.FormatVersionError{Path: path, FileVersion: uint16(v),
				SupportedVersion: modelfile.FormatVersion}
		}
	}
	for key, into := range map[string]any{"mean": &m.Standardization.Mean, "scale": &m.Standardization.Scale,
		"clip": &m.Standardization.Clip} {
		if text := meta[key]; text != "" {
			if err := json.Unmarshal([]byte(text), into); err != nil {
				return nil, &store.CorruptError{Path: path, Reason: fmt.Sprintf("invalid metadata entry %s in the "+
					"model file: %v", key, err)}
			}
		}
	}
	return m, nil
}

// MatchesSchema reports whether the model has exactly the tensors of the schema.
func (m *StoredModel) MatchesSchema(s wire.TensorSchema) bool {
	for _, x := range s {
		t, ok := m.tensors[x.Name]
		if !ok || t.DType != x.DType.String() || !slices.Equal(t.Shape, shapeAsInts(x.Shape)) {
			return false
		}
	}
	return len(m.tensors) == len(s)
}

// EncodeVector returns the parameters as they are sent, in the order of the schema.
func (m *StoredModel) EncodeVector(s wire.TensorSchema) []byte {
	var data []byte
	for _, x := range s {
		data = append(data, m.tensors[x.Name].Data...)
	}
	return data
}

// VectorForNewRun returns the parameter vector for a new run with the given schema. It returns an error if the model
// does not fit the schema or is not finite.
func (m *StoredModel) VectorForNewRun(s wire.TensorSchema) ([]byte, error) {
	if !m.MatchesSchema(s) {
		return nil, fmt.Errorf("the model has the tensors %s, but the configured task requires %s", m.describeTensors(),
			describeSchemaTensors(s))
	}
	data := m.EncodeVector(s)
	return data, wire.DecodeVector(make([]float32, len(data)/4), data)
}

// describeTensors returns a readable list of the tensors.
func (m *StoredModel) describeTensors() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(m.tensors)) {
		all = append(all, fmt.Sprintf("%s %s %v", name, m.tensors[name].DType, m.tensors[name].Shape))
	}
	return strings.Join(all, ", ")
}

// describeSchemaTensors returns a readable list of the tensors of a schema.
func describeSchemaTensors(s wire.TensorSchema) string {
	m := StoredModel{tensors: map[string]store.Tensor{}}
	for _, x := range s {
		m.tensors[x.Name] = store.Tensor{DType: x.DType.String(), Shape: shapeAsInts(x.Shape)}
	}
	return m.describeTensors()
}

// LoadModelVector returns the parameter vector of a model of the current run. The vector is nil if its hash does not
// match or the model cannot be read. The error reports damage even if the vector is intact, for example a damaged
// record file.
func (d *StateFolder) LoadModelVector(version wire.ModelVersion, hash wire.Digest, schema wire.TensorSchema) ([]byte,
	error) {
	path := d.CurrentRunModels.Path(uint64(version))
	file, damage := d.CurrentRunModels.Get(uint64(version))
	if damage != nil {
		file, _ = d.Disk.ReadFile(path)
	}
	m, err := DecodeModel(path, file)
	if err == nil && m.MatchesSchema(schema) {
		if data := m.EncodeVector(schema); wire.BlobDigest(data) == hash {
			return data, damage
		}
	}
	return nil, cmp.Or(damage, err,
		error(&store.CorruptError{Path: path, Reason: "the model file does not match the model recorded in the run's " +
			"journal"}))
}

func shapeAsInts(shape []uint32) []int {
	var all []int
	for _, n := range shape {
		all = append(all, int(n))
	}
	return all
}
