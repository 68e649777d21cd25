package runs

import (
	"os"
	"regexp"
	"testing"
)

// TestFilesAreListed compares Files with the files that the source declares.
func TestFilesAreListed(t *testing.T) {
	source, err := os.ReadFile("files.go")
	if err != nil {
		t.Fatal(err)
	}
	declared := len(regexp.MustCompile(`= &store\.StateFile\{Name: `).FindAll(source, -1))
	distinct := map[string]bool{}
	for _, f := range Files {
		distinct[f.Name] = true
		if f.LossConsequence == "" || f.Version == 0 || f.MaxBytes == 0 {
			t.Errorf("%+v lacks its version, its limit or the consequence of a loss", f)
		}
	}
	if declared == 0 || declared != len(Files) || len(distinct) != len(Files) {
		t.Errorf("%d files are declared, %d are listed, with %d names", declared, len(Files), len(distinct))
	}
}
