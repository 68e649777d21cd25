package coordinator

import (
	"encoding/json"
	"strconv"

	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// encodeModel returns a model as safetensors, with what is needed to use it.
func encodeModel(version wire.ModelVersion, p *task.Problem[float32], data []byte, from origin) ([]byte, error) {
	var tensors []store.Tensor
	at := 0
	for _, s := range p.Schema(wire.KindTraining) {
		t := store.Tensor{Name: s.Name, DType: s.DType.String(), Shape: ints(s.Shape)}
		n := s.DType.Size()
		for _, d := range t.Shape {
			n *= d
		}
		t.Data = data[at : at+n]
		at += n
		tensors = append(tensors, t)
	}
	t := &p.Task
	meta := map[string]string{
		"format": "fedmesh", "format_version": strconv.Itoa(modelFormat), "task": t.Name,
		"version": strconv.FormatUint(uint64(version), 10),
		"risk":    string(t.Model.Risk), "activation": string(t.Model.Activation), "target": t.Target,
	}
	if from.Model != "" {
		meta["from"] = from.Model
	}
	for key, v := range map[string]any{
		"features": t.Features, "mean": t.Standardization.Mean, "scale": t.Standardization.Scale,
		"clip": t.Standardization.Clip,
	} {
		text, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		meta[key] = string(text)
	}
	return store.EncodeSafetensors(tensors, meta)
}

func ints(shape []uint32) []int {
	var all []int
	for _, n := range shape {
		all = append(all, int(n))
	}
	return all
}
