package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/spec"
)

// letters is a TextParser field that accepts only texts of one letter.
type letters struct {
	texts []string
	list  bool
}

func (l *letters) Parse(texts []string, list bool) (bad int, err error) {
	for i, t := range texts {
		if len(t) != 1 {
			return i, fmt.Errorf("want one letter, got %q", t)
		}
	}
	l.texts, l.list = texts, list
	return 0, nil
}

func (l letters) String() string {
	if l.list {
		return "[" + strings.Join(l.texts, ", ") + "]"
	}
	return strings.Join(l.texts, "")
}

type selfReading struct {
	Section struct {
		Own letters `yaml:"own"`
	} `yaml:"section"`
	Numbers []float64   `yaml:"numbers"`
	Rows    [][]float64 `yaml:"rows"`
}

func loadSelfReading(t *testing.T, yaml string, overrides map[string]string) (selfReading, error) {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.WriteFile("c.yaml", []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	var cfg selfReading
	err := config.Load(&cfg, config.Source{Path: "c.yaml", Overrides: overrides})
	return cfg, err
}

func TestSelfReadingFields(t *testing.T) {
	for yaml, want := range map[string]string{"section:\n  own: a\n": "a", "section: {own: [a, b]}\n": "[a, b]"} {
		cfg, err := loadSelfReading(t, yaml+"numbers: [1, 2.5e-3]\nrows: [[1, 2], [], [3]]\n", nil)
		if err != nil || cfg.Section.Own.String() != want ||
			fmt.Sprint(cfg.Numbers, cfg.Rows) != "[1 0.0025] [[1 2] [] [3]]" {
			t.Errorf("%q gives %+v, %v", yaml, cfg, err)
		}
		var b strings.Builder
		if err := config.WriteYAML(&b, &cfg); err != nil {
			t.Fatal(err)
		}
		if again, err := loadSelfReading(t, b.String(), nil); err != nil || fmt.Sprint(again) != fmt.Sprint(cfg) {
			t.Errorf("written as %q, read as %+v, %v", b.String(), again, err)
		}
	}
	for text, want := range map[string]string{"x": "x", "[x, y]": "[x, y]"} {
		if cfg, err := loadSelfReading(t,
			"numbers: [1]\n", map[string]string{"section.own": text, "numbers": "3,4"}); err != nil ||
			cfg.Section.Own.String() != want || len(cfg.Numbers) != 2 {
			t.Errorf("override %q gives %+v, %v", text, cfg, err)
		}
	}
}

func TestSelfReadingErrors(t *testing.T) {
	for yaml, want := range map[string]string{
		"section:\n  own: [a, bcd]\n": "c.yaml:2:12: section.own: want one letter, got \"bcd\"\n  2 |   own: [a, " +
			"bcd]\n    |            ^",
		"section:\n  own: abc\n":      "c.yaml:2:8: section.own: want one letter, got \"abc\"",
		"section:\n  own: [a, [b]]\n": "c.yaml:2:12: section.own: want one value, got a list",
		"section:\n  own: []\n":       "c.yaml:2:8: section.own: is an empty list",
		"section:\n  own: [a, \"1\"]\n": "c.yaml:2:12: section.own: want a number, got the text \"1\"; remove the " +
			"quotes",
		"rows: [[1], 2]\n": "c.yaml:1:13: rows[1]: want a list, got 2",
		"rows: [[1, x]]\n": "c.yaml:1:12: rows[0][1]: want a finite number, got \"x\"",
		"numbers: 3\n":     "c.yaml:1:10: numbers: want a list, got 3",
	} {
		if _, err := loadSelfReading(t, yaml, nil); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q gives\n%v\nwant\n%s", yaml, err, want)
		}
	}
	if _, err := loadSelfReading(t, "numbers: [1]\n", map[string]string{"rows": "1,2"}); err == nil ||
		!strings.Contains(err.Error(), "must be a list of lists; write the value as [[a, b], [c, d]]") {
		t.Errorf("rows from the command line: %v", err)
	}
}

// TestFlowOnTheCommandLine checks that lists and maps on the command line may use the notation of the file: [a, b] and
// {k: v}.
func TestFlowOnTheCommandLine(t *testing.T) {
	type fields struct {
		Words  []string             `yaml:"words"`
		Rows   [][]float64          `yaml:"rows"`
		Names  map[string]string    `yaml:"names"`
		Ranges map[string][]float64 `yaml:"ranges"`
		Text   string               `yaml:"text"`
	}
	load := func(key, text string) (fields, error) {
		var cfg fields
		return cfg, config.Load(&cfg, config.Source{Overrides: map[string]string{key: text}})
	}
	for _, tt := range []struct{ key, text, want string }{
		{"words", `["off, line", -9999]`, `[off, line -9999] [] map[] map[]`},
		{"words", `a, b`, `[a b] [] map[] map[]`},
		{"words", `[]`, `[] [] map[] map[]`},
		{"rows", `[[1, 2], [3]]`, `[] [[1 2] [3]] map[] map[]`},
		{"names", `{a: "b: c", d: e}`, `[] [] map[a:b: c d:e] map[]`},
		{"names", `a=b,d=e`, `[] [] map[a:b d:e] map[]`},
		{"ranges", `{a: [0, 50]}`, `[] [] map[] map[a:[0 50]]`},
		{"text", `[a]`, `[] [] map[] map[][a]`},
	} {
		cfg, err := load(tt.key, tt.text)
		if got := fmt.Sprint(cfg.Words, cfg.Rows, cfg.Names, cfg.Ranges, cfg.Text); err != nil || got != tt.want {
			t.Errorf("%s=%s gives %q, %v; want %q", tt.key, tt.text, got, err, tt.want)
		}
	}
	for _, tt := range []struct{ key, text, want string }{
		{"words", `[a, {b: c}]`, "command line: words[1]: want text, got a section of keys"},
		{"words", `["a]`, "command line: words: "},
		{"rows", `[[x]]`, "command line: rows[0][0]: want a finite number"},
		{"ranges", `a=[0,50]`, "or write the value as {name: value}, as in the configuration file"},
	} {
		if _, err := load(tt.key, tt.text); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s=%s gives %v, want %q", tt.key, tt.text, err, tt.want)
		}
	}
}

// TestWords checks a field with a fixed set of words. An invalid word must be reported at its location, and valid words
// must be written unchanged.
func TestWords(t *testing.T) {
	type words struct {
		Noise spec.NoiseLaw `yaml:"noise"`
	}
	path := filepath.Join(t.TempDir(), "c.yaml")
	for yaml, want := range map[string]string{
		"noise: laplace\n": "", "noise: \"none\"\n": "",
		"noise: white\n": `c.yaml:1:8: noise: want none, gaussian or laplace, got "white"`,
		"noise: 3\n":     `c.yaml:1:8: noise: want none, gaussian or laplace, got "3"`,
	} {
		if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
		var cfg words
		err := config.Load(&cfg, config.Source{Path: path})
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %q", yaml, err, want)
			}
			continue
		}
		var b strings.Builder
		if err == nil {
			err = config.WriteYAML(&b, &cfg)
		}
		if err != nil || b.String() != strings.ReplaceAll(yaml, `"`, "") {
			t.Errorf("%q is written as %q, %v", yaml, b.String(), err)
		}
	}
}
