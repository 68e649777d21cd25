package config_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/config"
)

// file writes a configuration file and returns its path.
func file(t *testing.T, yaml string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOneOrMore(t *testing.T) {
	type cfg struct {
		Nodes config.OneOrMore `yaml:"nodes"`
	}
	for _, tt := range []struct {
		yaml, env, set string
		want           []string
		written        string
	}{
		{yaml: "nodes: tcp://a:1\n", want: []string{"tcp://a:1"}, written: "nodes: \"tcp://a:1\"\n"},
		{yaml: "nodes: [tcp://a:1]\n", want: []string{"tcp://a:1"}, written: "nodes: \"tcp://a:1\"\n"},
		{yaml: "nodes: [tcp://a:1, 'tcp://b:1']\n", want: []string{"tcp://a:1", "tcp://b:1"},
			written: "nodes: [\"tcp://a:1\", \"tcp://b:1\"]\n"},
		{yaml: "nodes:\n  - tcp://a:1\n  - tcp://u:hush@b:1\n", want: []string{"tcp://a:1", "tcp://u:hush@b:1"},
			written: "nodes: [\"tcp://a:1\", \"tcp://[redacted]@b:1\"]\n"},
		{yaml: "nodes: ''\n", want: nil, written: "nodes: []\n"},
		{yaml: "nodes: []\n", want: nil, written: "nodes: []\n"},
		{yaml: "nodes: a\n", env: "b, c", want: []string{"b", "c"}, written: "nodes: [b, c]\n"},
		{yaml: "nodes: [a, b]\n", env: "c", want: []string{"c"}, written: "nodes: c\n"},
		{env: "a", set: "b,c", want: []string{"b", "c"}, written: "nodes: [b, c]\n"},
	} {
		src := config.Source{EnvPrefix: "T"}
		if tt.yaml != "" {
			src.Path = file(t, tt.yaml)
		}
		if tt.env != "" {
			src.Environ = []string{"T_NODES=" + tt.env}
		}
		if tt.set != "" {
			src.Overrides = map[string]string{"nodes": tt.set}
		}
		c := cfg{Nodes: config.OneOrMore{"default"}}
		if err := config.Load(&c, src); err != nil {
			t.Errorf("%+v: %v", tt, err)
		}
		if !slices.Equal(c.Nodes, tt.want) {
			t.Errorf("%+v: got %q", tt, c.Nodes)
		}
		var b strings.Builder
		if err := config.WriteYAML(&b, &c); err != nil || b.String() != tt.written {
			t.Errorf("%+v: written as %q (%v)", tt, &b, err)
		}
	}
	for yaml, want := range map[string]string{
		"nodes: 12\n":       `:1:8: nodes: want text, got 12`,
		"nodes: {a: b}\n":   `:1:8: nodes: want text, got a section of keys; put text that contains a colon in quotes`,
		"nodes: [a, [b]]\n": `nodes[1]: want text, got a list`,
	} {
		c := cfg{}
		if err := config.Load(&c, config.Source{Path: file(t, yaml)}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", yaml, err, want)
		}
	}
}
