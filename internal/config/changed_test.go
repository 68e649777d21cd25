package config_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/internal/config"
)

func TestChanged(t *testing.T) {
	type inner struct {
		Password config.Secret `yaml:"password"`
		Size     int           `yaml:"size"`
	}
	type outer struct {
		Name  string            `yaml:"name"`
		List  []string          `yaml:"list"`
		Table map[string]string `yaml:"table"`
		Inner inner             `yaml:"inner"`
		Maybe *inner            `yaml:"maybe"`
	}
	a := outer{Name: "n", List: []string{"a", "b"}, Table: map[string]string{"k": "v"}, Inner: inner{"secret", 3}}
	b := a
	b.List, b.Table = []string{"a", "b"}, map[string]string{"k": "v"}
	if got := config.ChangedKeys(&a, &b); got != nil {
		t.Errorf("equal configurations differ in %v", got)
	}
	b.List, b.Table, b.Inner.Password, b.Maybe = []string{"a"}, map[string]string{"k": "w"}, "other", &inner{Size: 1}
	want := []string{"list", "table", "inner.password", "maybe.size"}
	for range 2 { // the order of the arguments does not matter
		if got := config.ChangedKeys(&a, &b); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		a, b = b, a
	}
	if a.Maybe != nil {
		t.Error("a section appears by comparing")
	}
}

func TestLines(t *testing.T) {
	one := &config.Error{Origin: "a.yaml", Line: 3, Column: 5, Problem: "unknown key", Hint: "did you mean it?",
		Excerpt: "    x: 1"}
	two := &config.Error{Origin: "command line", Problem: "is a section"}
	want := []string{"a.yaml:3:5: unknown key; did you mean it?", "command line: is a section", "first", "second"}
	if got := config.ErrorLines(errors.Join(one, errors.Join(two, errors.New("first\nsecond")))); !slices.Equal(got,
		want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
