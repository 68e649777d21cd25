package testkit

import (
	"os"
	"strings"
	"testing"
)

// Golden compares got with the content of a golden file and reports the first line that differs. If update is true, it
// writes got to the file instead.
func Golden(t testing.TB, file, got string, update bool) {
	t.Helper()
	if update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; write it with -update", err)
	}
	if got == string(want) {
		return
	}
	lines, wanted := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	i := 0
	for i < min(len(lines), len(wanted))-1 && lines[i] == wanted[i] {
		i++
	}
	t.Errorf("%s, line %d:\n got %s\nwant %s\nif the change is intended, run the test with -update", file, i+1,
		lines[i], wanted[i])
}
