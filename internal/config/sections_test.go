package config_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/spec"
)

type sensor struct {
	Name  string        `yaml:"name"`
	Range []float64     `yaml:"range"`
	Wait  time.Duration `yaml:"wait"`
}

type sensors struct {
	All []sensor `yaml:"all"`
}

func (s *sensors) Validate() error {
	var c spec.ProblemList
	for _, one := range s.All {
		c.Require(one.Name != "b" || one.Wait == 0, "all[1].wait", "is %s", one.Wait)
	}
	return c.Err()
}

func TestListOfSections(t *testing.T) {
	want := sensors{[]sensor{{Name: "a", Range: []float64{-1, 1}}, {Name: "c d", Wait: time.Hour}}}
	for _, yaml := range []string{"all: [{name: a, range: [-1, 1]}, {name: c d, wait: 1h}]\n",
		"all:\n  - name: a\n    range: [-1, 1]\n  - {name: \"c d\", wait: 60m}\n"} {
		got := sensors{[]sensor{{Name: "default"}}}
		if err := config.Load(&got, config.Source{Path: file(t, yaml)}); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v", yaml, got, err)
		}
		var b strings.Builder
		if err := config.WriteYAML(&b, &got); err != nil {
			t.Fatal(err)
		}
		written := "all:\n  - {name: a, range: [-1, 1]}\n  - {name: \"c d\", wait: 1h0m0s}\n"
		if b.String() != written {
			t.Errorf("written as %q", b.String())
		}
	}
}

func TestListOfSectionsRefuses(t *testing.T) {
	for yaml, want := range map[string]string{
		"all:\n  - {name: a}\n  - {name: b, wait: 1h}\n": ":3:21: all[1].wait: is 1h0m0s",
		"all: [{nam: a}]\n":                `:1:8: unknown key "nam"`,
		"all: [{name: a, name: b}]\n":      `:1:17: duplicate key "name"`,
		"all: [{name: }]\n":                "all[0].name: is empty",
		"all: [a]\n":                       ":1:7: all[0]: want a section of keys, got \"a\"",
		"all: {name: a}\n":                 "all: want a list, got a section of keys",
		"all: [{name: a, range: [x]}]\n":   ":1:25: all[0].range[0]: want a finite number",
		"all: [{name: a, wait: 3 days}]\n": ":1:23: all[0].wait: ",
	} {
		err := config.Load(&sensors{}, config.Source{Path: file(t, yaml)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", yaml, err, want)
		}
	}
	err := config.Load(&sensors{}, config.Source{Overrides: map[string]string{"all": "a"}})
	if err == nil || !strings.Contains(err.Error(), "must be a list of sections") {
		t.Errorf("from the command line: %v", err)
	}
}
