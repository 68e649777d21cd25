package modelfile_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// external returns an external model whose tensors are in a different order than in the model file, which sorts tensors
// by name.
func external() *modelfile.Model {
	a := learner.Architecture{Kind: spec.ModelExternal, Outputs: 1, Risk: spec.LossSquared,
		ExternalTensors: []learner.TensorSpec{
			{Name: "z", Shape: []int{2, 2}}, {Name: "s"}, {Name: "a", Shape: []int{3}}}}
	vector := wire.AppendVector(nil, []float32{1, 2, 3, 4, 5, 6, 7, 8})
	m := modelfile.NewModel(&wire.Task{Name: "plant"}, a, vector, wire.BlobDigest(vector))
	m.Run, m.Version = 3, 17
	return m
}

// TestExternal checks that an external model is decoded unchanged, although this package cannot make predictions with
// it.
func TestExternal(t *testing.T) {
	m := external()
	file := encode(t, m)
	got, err := modelfile.Decode(file)
	if err != nil || !got.IsSameModel(m) || !got.IsComparableWith(m) || !got.IsExternal() ||
		!bytes.Equal(got.ParameterBytes,
			m.ParameterBytes) {
		t.Fatalf("%+v, error %v", got, err)
	}
	if _, err := got.Predictor(); err == nil || !strings.Contains(err.Error(), "only the program that trained the "+
		"model") {
		t.Errorf("it predicts: %v", err)
	}
	got.Architecture.ExternalTensors = slices.Clone(got.Architecture.ExternalTensors)
	if got.Architecture.ExternalTensors[2].Shape = []int{3, 1}; got.IsComparableWith(m) {
		t.Error("models of other shapes are alike")
	}
	for was, is := range map[string]string{`["z","s","a"]`: `["z","s","s"]`, `["z","s"`: `["z","S"`,
		`["z","s","a"]`[1:]: `"z","a","s"]`, `"tensors"`: `"tensorS"`} {
		escape := strings.NewReplacer(`"`, `\"`).Replace
		if !strings.HasPrefix(was, `"t`) {
			was, is = escape(was), escape(is)
		}
		other := bytes.Replace(file, []byte(was), []byte(is), 1)
		if bytes.Equal(other, file) {
			t.Fatalf("%s is not in the file", was)
		}
		if _, err := modelfile.Decode(other); err == nil {
			t.Errorf("%s in the place of %s is read", is, was)
		}
	}
}
