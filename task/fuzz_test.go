package task_test

import (
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// FuzzValidate checks that every announced task is either accepted or rejected without a panic, and that the columns of
// an accepted task match its inputs.
func FuzzValidate(f *testing.F) {
	golden, err := filepath.Glob("../wire/testdata/golden/task*")
	if err != nil || len(golden) < 3 {
		f.Fatalf("%d tasks: %v", len(golden), err)
	}
	taken := 0
	for _, name := range golden {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		body, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
		w, bad := wire.DecodeTask(body)
		if err := errors.Join(err, bad); err != nil {
			f.Fatal(err)
		}
		// The golden tasks contain every kind of option, including incompatible ones.
		w.Training.NormalizesStepSize, w.Training.Proximal, w.Model.HuberDelta = false, 0, 0
		if task.Validate[float32](w) == nil {
			taken++
		}
		f.Add(w.AppendEncoding(nil))
	}
	if taken < 3 {
		f.Fatalf("%d tasks are taken", taken)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		w, err := wire.DecodeTask(body)
		if err != nil || task.Validate[float32](w) != nil || len(w.Recipe.Inputs) == 0 {
			return
		}
		for _, name := range append(w.Features, w.TargetColumn) {
			if c,
				err := spec.ParseColumnExpression(name); err != nil || !c.IsCalendar() &&
				w.Recipe.InputIndex(c.InputName) < 0 {
				t.Fatalf("%q is no column of the task: %+v, %v", name, c, err)
			}
		}
	})
}
