package runs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/wire"
)

// TestSampleHistory checks the sample of the newest run for short and long files, with damaged and incomplete lines.
func TestSampleHistory(t *testing.T) {
	line := func(run, round int) string {
		return fmt.Sprintf(`{"run":%d,"round":%d,"kind":"training","outcome":"closed","version":%d,"risk":0.5,`+
			`"audit":{"n":%d,"hash":"%s"}}`+"\n", run, round, round, round, strings.Repeat("A", 120))
	}
	many := func(run, rounds int) string {
		var b strings.Builder
		for r := range rounds {
			b.WriteString(line(run, r+1))
		}
		return b.String()
	}
	for _, tt := range []struct {
		name, text  string
		run         wire.RunID
		least, most int          // bounds for the number of lines
		first, last wire.RoundID // first may be at most this number
	}{
		{"no file", "", 0, 0, 0, 0, 0},
		{"only an incomplete line", `{"run":7,"rou`, 0, 0, 0, 0, 0},
		{"one line", line(7, 1), 7, 1, 1, 1, 1},
		{"a short run after a long one", many(6, 5000) + many(7, 3), 7, 3, 3, 1, 3},
		{"a long run after a short one", many(6, 10) + many(7, 5000), 7, 90, 101, 60, 5000},
		{"a damaged line", many(7, 2) + "{\n" + line(7, 3) + `{"ru`, 7, 3, 3, 1, 3},
		{"damage larger than a block", many(7, 2) + strings.Repeat("x", 20000) + "\n", 7, 2, 2, 1, 2},
	} {
		dir := t.TempDir()
		if tt.text != "" {
			if err := os.WriteFile(filepath.Join(dir, historyFile), []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		all, err := SampleHistory(dir, 100)
		if err != nil || len(all) < tt.least || len(all) > tt.most {
			t.Errorf("%s: %d lines, error %v; want %d to %d", tt.name, len(all), err, tt.least, tt.most)
			continue
		}
		for i, h := range all {
			if h.Run != tt.run || i > 0 && h.Round <= all[i-1].Round {
				t.Errorf("%s: line %d is round %d of run %d", tt.name, i, h.Round, h.Run)
			}
		}
		if n := len(all); n > 0 && (all[0].Round > tt.first || all[n-1].Round != tt.last) {
			t.Errorf("%s: rounds %d to %d", tt.name, all[0].Round, all[n-1].Round)
		}
	}
}

// BenchmarkSampleHistory samples a history of 400,000 rounds.
func BenchmarkSampleHistory(b *testing.B) {
	dir := b.TempDir()
	f, err := os.Create(filepath.Join(dir, historyFile))
	if err != nil {
		b.Fatal(err)
	}
	for r := range 400_000 {
		fmt.Fprintf(f, `{"run":7,"round":%d,"kind":"training","outcome":"closed","version":%d,"selected":10,`+
			`"accepted":9,"seconds":1.5,"risk":%g}`+"\n", r, r, 1/float64(r+1))
	}
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if all, err := SampleHistory(dir, 1000); err != nil || len(all) < 900 {
			b.Fatal(len(all), err)
		}
	}
}
