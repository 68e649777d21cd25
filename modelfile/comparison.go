package modelfile

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// Comparison describes how a model file differs from an earlier one.
type Comparison struct {
	Tensors  []TensorChange   `json:"tensors"`
	Metadata []MetadataChange `json:"metadata"` // only metadata that differ, by key
}

// TensorChange compares the tensor b of the second file with the tensor a of the first.
type TensorChange struct {
	Name  string `json:"name"`
	Shape []int  `json:"shape"`
	// Mismatch explains why the tensors cannot be compared; then the fields below are 0.
	Mismatch   string  `json:"mismatch,omitempty"`
	Change     float64 `json:"change"`      // ‖b − a‖₂
	Largest    float64 `json:"largest"`     // largest coordinate of |b − a|
	NormBefore float64 `json:"norm_before"` // ‖a‖₂
}

// MetadataChange is a metadata value that differs. An absent value is empty.
type MetadataChange struct {
	Key    string `json:"key"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// Compare compares two model files in the safetensors format, tensor by tensor.
func Compare(before, after []byte) (Comparison, error) {
	c := Comparison{Tensors: []TensorChange{}, Metadata: []MetadataChange{}}
	a, metaA, err := store.DecodeSafetensors(before)
	if err != nil {
		return c, err
	}
	b, metaB, err := store.DecodeSafetensors(after)
	if err != nil {
		return c, err
	}
	for _, t := range a {
		x := TensorChange{Name: t.Name, Shape: t.Shape}
		i := slices.IndexFunc(b, func(o store.Tensor) bool { return o.Name == t.Name })
		if i < 0 || b[i].DType != t.DType || !slices.Equal(b[i].Shape, t.Shape) {
			x.Mismatch = "tensor exists only in the first model, or has a different shape in the second"
		} else if err := x.measure(t.Data, b[i].Data); err != nil {
			return c, fmt.Errorf("tensor %s: %w", t.Name, err)
		}
		c.Tensors = append(c.Tensors, x)
	}
	for _, t := range b {
		if !slices.ContainsFunc(a, func(o store.Tensor) bool { return o.Name == t.Name }) {
			c.Tensors = append(c.Tensors, TensorChange{Name: t.Name, Shape: t.Shape,
				Mismatch: "tensor exists only in the second model"})
		}
	}
	keys := slices.AppendSeq(slices.Collect(maps.Keys(metaA)), maps.Keys(metaB))
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		if metaA[key] != metaB[key] {
			c.Metadata = append(c.Metadata, MetadataChange{key, metaA[key], metaB[key]})
		}
	}
	return c, nil
}

// measure sets the distances between two encoded float32 vectors of equal length.
func (t *TensorChange) measure(a, b []byte) error {
	x, y := make([]float32, len(a)/4), make([]float32, len(b)/4)
	if err := wire.DecodeVector(x, a); err != nil {
		return err
	}
	if err := wire.DecodeVector(y, b); err != nil {
		return err
	}
	for i := range x {
		d := math.Abs(float64(y[i]) - float64(x[i]))
		t.Change += d * d
		t.NormBefore += float64(x[i]) * float64(x[i])
		t.Largest = max(t.Largest, d)
	}
	t.Change, t.NormBefore = math.Sqrt(t.Change), math.Sqrt(t.NormBefore)
	return nil
}
