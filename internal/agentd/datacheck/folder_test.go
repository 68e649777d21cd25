package datacheck

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/settings"
)

// TestFaultsNameTheFile checks that the text output, the findings and the decline reason name the file of a fault
// instead of its folder.
func TestFaultsNameTheFile(t *testing.T) {
	run := func(t *testing.T, files map[string]string) (r *Result, text, dir string) {
		s := settings.DefaultAgent()
		dir = filepath.Join(t.TempDir(), "log")
		s.StateDir, s.Data.CSVPath, s.Data.TimeColumn = t.TempDir(), dir, "t"
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for name, content := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r, err := Run(&s, nil, "nobody knows it")
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := r.Draw(&b); err != nil {
			t.Fatal(err)
		}
		return r, b.String(), dir
	}
	const first = "t,x\n2026-03-01T00:00:00Z,1\n2026-03-01T01:00:00Z,2\n2026-03-01T02:00:00Z,3\n"

	t.Run("a bad line in the second file", func(t *testing.T) {
		r, text, dir := run(t, map[string]string{"a.csv": first,
			"b.csv": "t,x\n2026-03-02T00:00:00Z,1\n2026-03-02T01:00:00Z\n"})
		if want := "  " + filepath.Join(dir, "b.csv") + ":3: "; !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
		found := r.DoctorFindings()
		if want := "first: " + filepath.Join(dir, "b.csv") + ":3: "; !strings.Contains(found[0].Observation, want) {
			t.Errorf("no %q in %q", want, found[0].Observation)
		}
	})
	t.Run("many bad lines in two files", func(t *testing.T) {
		bad := strings.Repeat("noon,1\n", 15)
		_, text, dir := run(t, map[string]string{"a.csv": first + bad, "b.csv": "t,x\n" + bad})
		if want := filepath.Join(dir, "b.csv") + ":2:1: "; !strings.Contains(text, want) ||
			!strings.Contains(text, "  and 10 more, the last of them in line 16 of "+filepath.Join(dir, "b.csv")+"\n") {
			t.Errorf("no %q, or another last line, in\n%s", want, text)
		}
	})
	t.Run("a file without a header", func(t *testing.T) {
		_, text, dir := run(t, map[string]string{"a.csv": first, "b.csv": "\n\n"})
		if want := filepath.Join(dir, "b.csv") + ": the file is empty"; !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	})
	t.Run("nothing can be read", func(t *testing.T) {
		r, text, dir := run(t, map[string]string{"a.csv": "t,x\nnoon,1\n", "b.csv": "t,x\nnight,1\n"})
		if want := filepath.Join(dir, "a.csv") + ": line 2: "; !strings.HasPrefix(r.DeclineReason, want) ||
			!strings.Contains(text, "the data source cannot be used: "+want) {
			t.Errorf("%q, want %q", r.DeclineReason, want)
		}
	})
}
