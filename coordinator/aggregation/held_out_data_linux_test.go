package aggregation

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/sources"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// TestHeldOutRowsAreLost simulates the loss of held-out rows that do not fit into memory. The next score returns an
// error, and the score after that reads the rows again, without rows added since.
func TestHeldOutRowsAreLost(t *testing.T) {
	if testing.Short() {
		t.Skip("more rows than a machine keeps in memory")
	}
	dir := t.TempDir()
	path, folder := filepath.Join(dir, "held.csv"), filepath.Join(dir, "state")
	text := "a,y\n" + strings.Repeat("1,2\n0,1\n", 600_000)
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(text)
	source, err := sources.Open(&data.Config{CSVPath: path, RowFileFolder: folder})
	if err != nil {
		t.Fatal(err)
	}
	p, err := task.Compile[float32](wire.Task{Name: "line", Features: []string{"a"}, TargetColumn: "y",
		Model: wire.ModelSpec{Outputs: 1, Activation: spec.ActivationTanh, Risk: spec.LossSquared},
		Training: wire.TrainingSettings{ExchangeKind: spec.ExchangeParameters, StepSize: 0.1,
			StepTimeBudgetMillis: 1000, MinLocalSteps: 1,
			MaxLocalSteps: 4}})
	if err != nil {
		t.Fatal(err)
	}
	h, err := openHeldOutScorer(source, p)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{"whole", "lost", "again"} {
		if step == "lost" {
			testkit.TruncateOpenFile(t, folder)
			write(text + "9,9\n")
		}
		s, err := h.scoreModel(vector(1))
		if step == "lost" {
			if err == nil || !strings.Contains(err.Error(), "cannot read the held-out data: ") {
				t.Errorf("%+v, %v", s, err)
			}
			continue
		}
		if err != nil || s.Samples != 1_200_000 || s.Risk != 0.5 || s.R2 != -3 {
			t.Errorf("%s: %+v, %v", step, s, err)
		}
	}
}
