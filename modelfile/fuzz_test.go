package modelfile_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/modelfile"
)

// FuzzDecode checks that no file makes Decode or a prediction panic, and that each model that is decoded can be encoded
// and decoded again.
func FuzzDecode(f *testing.F) {
	for _, m := range append(slices.Collect(maps.Values(models())), external()) {
		file, err := m.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(file)
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		m, err := modelfile.Decode(file)
		if err != nil {
			return
		}
		p, err := m.Predictor()
		if (err != nil) != m.IsExternal() {
			t.Fatal(err)
		}
		if err == nil {
			p.Predict(make([]float32, len(m.Features)))
		}
		again, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := modelfile.Decode(again); err != nil || !got.IsSameModel(m) {
			t.Errorf("%+v, %v; want %+v", got, err, m)
		}
	})
}
