package coordinator

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// encodeModel returns a model as safetensors, with what is needed to use it.
func encodeModel(version wire.ModelVersion, p *task.Problem[float32], data []byte) ([]byte, error) {
	var tensors []store.Tensor
	at := 0
	for _, s := range p.Schema(wire.KindTraining) {
		t := store.Tensor{Name: s.Name, DType: s.DType.String()}
		n := s.DType.Size()
		for _, d := range s.Shape {
			t.Shape = append(t.Shape, int(d))
			n *= int(d)
		}
		t.Data = data[at : at+n]
		at += n
		tensors = append(tensors, t)
	}
	t := &p.Task
	meta := map[string]string{
		"format": "fedmesh", "task": t.Name, "version": strconv.FormatUint(uint64(version), 10),
		"risk": p.Model.Architecture().Risk.String(), "activation": p.Model.Architecture().Activation.String(), "target": t.Target,
	}
	for key, v := range map[string]any{
		"features": t.Features, "mean": t.Standardization.Mean, "scale": t.Standardization.Scale, "clip": t.Standardization.Clip,
	} {
		text, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		meta[key] = string(text)
	}
	return store.EncodeSafetensors(tensors, meta)
}

// loadModel returns a model as a vector and as its blob.
func (d *disk) loadModel(version wire.ModelVersion, hash wire.Digest, schema wire.Schema) ([]float32, []byte, error) {
	file, err := d.models.Get(uint64(version))
	if err != nil {
		return nil, nil, fmt.Errorf("the run's model: %w", err)
	}
	tensors, _, err := store.DecodeSafetensors(file)
	if err != nil {
		return nil, nil, err
	}
	byName := map[string][]byte{} // a safetensors file has an order of its own
	for _, t := range tensors {
		byName[t.Name] = t.Data
	}
	var data []byte
	for _, s := range schema {
		data = append(data, byName[s.Name]...)
	}
	if sha256.Sum256(data) != hash {
		return nil, nil, fmt.Errorf("model %d in the state folder is not the one that the run stands on; begin a new run", version)
	}
	w := make([]float32, len(data)/4)
	return w, data, wire.DecodeVector(w, data)
}
