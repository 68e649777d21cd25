package datacheck

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/fedmesh/fedmesh/cmd/internal/settings"
)

// TestDrawnTexts: texts of a file reach a terminal cut, and without what it would obey.
func TestDrawnTexts(t *testing.T) {
	const escape = "\x1b]0;title\a"
	long := strings.Repeat("x", 1000)
	s := settings.DefaultAgent()
	s.StateDir, s.Data.CSV = t.TempDir(), filepath.Join(t.TempDir(), "d.csv")
	text := "kind," + escape + "name," + long + ",µg/m³\n"
	for _, cell := range []string{escape + "a", long, "plain", "\u202eback", `"say ""no"""`, "\xff"} {
		text += cell + ",1,2,\x9b3\n"
	}
	if err := os.WriteFile(s.Data.CSV, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Run(&s, nil, "nobody knows it")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := r.Draw(&b); err != nil {
		t.Fatal(err)
	}
	got := b.String()
	for _, c := range got {
		if c != '\n' && !unicode.IsPrint(c) {
			t.Errorf("%q reaches the terminal", c)
		}
	}
	for _, want := range []string{`"\x1b]0;title\aa", ` + long[:32] + "…, plain, ", `"\x1b]0;title\aname"  `, "µg/m³  "} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(got, long[:33]) {
		t.Error("a long text is not cut")
	}
	for _, f := range r.Findings() {
		if strings.Contains(f.Found+f.Mend, long[:33]) || strings.Contains(f.Found+f.Mend, "\x1b") {
			t.Errorf("%+v", f)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
}
