//go:build nightly

package reproduce

import (
	"bytes"
	"flag"
	"os"
	"runtime"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the table of docs/ROBUSTNESS.md")

// TestRobustnessPage checks that the table in docs/ROBUSTNESS.md equals the output of `fedlab reproduce robust`, and
// that the claims of the experiment hold.
func TestRobustnessPage(t *testing.T) {
	const path = "../../docs/ROBUSTNESS.md"
	r, err := defaultRobust().Run(t.Context(), Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Findings {
		if !f.Holds {
			t.Errorf("%s: %s; expected %s", f.What, f.Measured, f.Expected)
		}
	}
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begun := bytes.Cut(page, []byte("| rule | no attack |"))
	old, after, ended := bytes.Cut(rest, []byte("|\n\n"))
	after = append([]byte("\n"), after...)
	if !begun || !ended {
		t.Fatalf("%s has no table", path)
	}
	old = append(append([]byte("| rule | no attack |"), old...), "|\n"...)
	table := []byte(RobustTable(r))
	switch {
	case *update:
		page = bytes.Join([][]byte{before, table, after}, nil)
		if err := os.WriteFile(path, page, 0o666); err != nil {
			t.Fatal(err)
		}
	// on other processors, the last bits of the results differ
	case runtime.GOARCH == "amd64" && !bytes.Equal(old, table):
		t.Errorf("%s has another table than\n%s", path, table)
	}
}
