package coordinator

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

// storedModel is what a model's file holds.
type storedModel struct {
	version         uint64
	tensors         map[string]store.Tensor // a safetensors file has an order of its own
	meta            map[string]string
	standardization wire.Standardization // empty if the file tells none
}

// readModel returns a stored model whose file has the SHA-256 that its record tells.
func (d *stateFolder) readModel(models *store.Models, version uint64) (*storedModel, error) {
	file, err := models.Get(version)
	if err != nil {
		return nil, err
	}
	m, err := decodeModel(models.Path(version), file)
	if err != nil {
		return nil, err
	}
	m.version = version
	return m, nil
}

// decodeModel reads the file at path: one of ours, or another program's that has tensors of the same names.
func decodeModel(path string, file []byte) (*storedModel, error) {
	tensors, meta, err := store.DecodeSafetensors(file)
	if err != nil {
		return nil, &store.CorruptError{Path: path, Reason: err.Error()}
	}
	m := &storedModel{meta: meta, tensors: map[string]store.Tensor{}}
	for _, t := range tensors {
		m.tensors[t.Name] = t
	}
	if text := meta["format_version"]; text != "" { // a file of another program has none
		v, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return nil, &store.CorruptError{Path: path, Reason: "its format_version is " + strconv.Quote(text)}
		}
		if v != modelfile.Format {
			return nil, &store.VersionError{Path: path, FileVersion: uint16(v), SupportedVersion: modelfile.Format}
		}
	}
	for key, into := range map[string]any{"mean": &m.standardization.Mean, "scale": &m.standardization.Scale,
		"clip": &m.standardization.Clip} {
		if text := meta[key]; text != "" {
			if err := json.Unmarshal([]byte(text), into); err != nil {
				return nil, &store.CorruptError{Path: path, Reason: fmt.Sprintf("its metadata: %s: %v", key, err)}
			}
		}
	}
	return m, nil
}

// matchesSchema reports whether the file has exactly the tensors of the schema.
func (m *storedModel) matchesSchema(s wire.Schema) bool {
	for _, x := range s {
		t, ok := m.tensors[x.Name]
		if !ok || t.DType != x.DType.String() || !slices.Equal(t.Shape, shapeAsInts(x.Shape)) {
			return false
		}
	}
	return len(m.tensors) == len(s)
}

// encodeVector returns the model as it goes over the wire, in the order of the schema.
func (m *storedModel) encodeVector(s wire.Schema) []byte {
	var data []byte
	for _, x := range s {
		data = append(data, m.tensors[x.Name].Data...)
	}
	return data
}

// describeTensors names the tensors for a person.
func (m *storedModel) describeTensors() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(m.tensors)) {
		all = append(all, fmt.Sprintf("%s %s %v", name, m.tensors[name].DType, m.tensors[name].Shape))
	}
	return strings.Join(all, ", ")
}

func describeSchemaTensors(s wire.Schema) string {
	m := storedModel{tensors: map[string]store.Tensor{}}
	for _, x := range s {
		m.tensors[x.Name] = store.Tensor{DType: x.DType.String(), Shape: shapeAsInts(x.Shape)}
	}
	return m.describeTensors()
}

// loadModelVector returns the vector of the run's model, which has that hash; nil if it has not, or cannot be read. The
// error tells damage even where the vector is whole, as when only the record beside it is damaged.
func (d *stateFolder) loadModelVector(version wire.ModelVersion, hash wire.Digest, schema wire.Schema) ([]byte, error) {
	path := d.models.Path(uint64(version))
	file, damage := d.models.Get(uint64(version))
	if damage != nil {
		file, _ = d.disk.ReadFile(path)
	}
	m, err := decodeModel(path, file)
	if err == nil && m.matchesSchema(schema) {
		if data := m.encodeVector(schema); wire.BlobDigest(data) == hash {
			return data, damage
		}
	}
	return nil, cmp.Or(damage, err,
		error(&store.CorruptError{Path: path, Reason: "it is not the model that the journal names"}))
}
