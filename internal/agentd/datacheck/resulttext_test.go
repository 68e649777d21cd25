package datacheck

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/fedmesh/fedmesh/data/survey"
	"github.com/fedmesh/fedmesh/internal/settings"
)

// TestDrawnTexts checks that texts from a file are truncated and stripped of terminal control sequences.
func TestDrawnTexts(t *testing.T) {
	const escape = "\x1b]0;title\a"
	long := strings.Repeat("x", 1000)
	s := settings.DefaultAgent()
	s.StateDir, s.Data.CSVPath = t.TempDir(), filepath.Join(t.TempDir(), "d.csv")
	text := "kind," + escape + "name," + long + ",µg/m³\n"
	for _, cell := range []string{escape + "a", long, "plain", "\u202eback", `"say ""no"""`, "\xff"} {
		text += cell + ",1,2,\x9b3\n"
	}
	if err := os.WriteFile(s.Data.CSVPath, []byte(text), 0o600); err != nil {
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
	for _, f := range r.DoctorFindings() {
		if strings.Contains(f.Observation+f.Remedy, long[:33]) || strings.Contains(f.Observation+f.Remedy, "\x1b") {
			t.Errorf("%+v", f)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
}

// TestConstantColumnsAreNamed checks that a constant column is reported with a remedy. A column with a small spread far
// from 0 is not reported.
func TestConstantColumnsAreNamed(t *testing.T) {
	r := &RowSummary{MadeRows: 3, Columns: []survey.ColumnSummary{
		{Name: "still", Used: 3, Mean: 7, Min: 7, Max: 7, Histogram: []int{3}},
		{Name: "lat", Used: 3, Mean: 52.52, Sigma: 2e-4, Histogram: []int{3}},
		{Name: "rounded", Used: 3, Mean: 1.7e9, Sigma: 20, Histogram: []int{3}},
	}}
	var b strings.Builder
	r.drawRowSummary(&b)
	for name, want := range map[string]bool{"still": true, "lat": false, "rounded": true} {
		if named := strings.Contains(b.String(), "warning: column "+name+" has the same value in every "+
			"row"); named != want {
			t.Errorf("%s is named: %v\n%s", name, named, b.String())
		}
	}
}
