package state

import (
	"os"
	"regexp"
	"testing"
)

// TestFilesAreListed checks that Files contains all files that are declared in the source. A file that is not listed
// would lack a label value of the metric state_files_lost_total.
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
			t.Errorf("%+v does not say what is lost, its version or its limit", f)
		}
	}
	if declared == 0 || declared != len(Files) || len(distinct) != len(Files) {
		t.Errorf("%d files are declared, %d are listed, with %d names", declared, len(Files), len(distinct))
	}
}
