package coordinator

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestReadPast wants the newest rounds of the last run, whatever was before.
func TestReadPast(t *testing.T) {
	dir := t.TempDir()
	if p, err := ReadPast(dir, 2); err != nil || p.Version != 0 || p.Risks != nil {
		t.Errorf("without a history: %+v, error %v", p, err)
	}
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, historyFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"round":1,"kind":"training","version":8,"risk":9,"r2":0.9}
{"round":1,"kind":"statistics","version":0}
{"round":2,"kind":"training","version":1,"risk":3}
{"round":3,"kind":"training","version":2,"r2":0.25}
{"round":4,"kind":"training","version":3,"risk":2}
{"round":4,"kind":"training","version":3}
{"round":5,"kind":"training","version":4,"risk":1,"r2":0.5}
{"round":6,"kind":"trai`)
	p, err := ReadPast(dir, 2)
	if err != nil || p.Version != 4 || !slices.Equal(p.Risks, []float64{2, 1}) || p.R2 == nil || *p.R2 != 0.5 || p.Accuracy != nil {
		t.Errorf("got %+v, error %v", p, err)
	}
	write("{}\nnonsense\n")
	if _, err := ReadPast(dir, 2); err == nil {
		t.Error("nonsense is read")
	}
}
