package testkit

import (
	"maps"
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/spec"
)

// EachPair calls try for every pair of values of two different options. It sets all other options to compatible values
// where possible, and passes the remaining incompatibilities to try. words lists the values of each option.
func EachPair(t *testing.T, in spec.ConfigFileScope, words map[spec.OptionName][]string,
	try func(c spec.ChosenOptions, refused []spec.Incompatibility)) {
	t.Helper()
	for _, p := range spec.Incompatibilities(in) {
		for _, pick := range []spec.OptionCondition{p.A, p.B} {
			if !slices.Contains(words[pick.Option], pick.OptionValue) {
				t.Errorf("no words of %s, or without %q", pick.Option, pick.OptionValue)
			}
		}
	}
	options := slices.Sorted(maps.Keys(words))
	for i, a := range options {
		for _, b := range options[i+1:] {
			for _, wordA := range words[a] {
				for _, wordB := range words[b] {
					c := spec.ChosenOptions{a: wordA, b: wordB}
					for _, o := range options {
						completeChoice(c, in, o, words[o])
					}
					if c[spec.OptionAlgorithm] != string(spec.FedDec) {
						delete(c, spec.OptionServerEvery) // This option exists only with mixing.
					}
					try(c, incompatibilities(c, in))
				}
			}
		}
	}
}

// Words converts a slice of option values to a slice of strings for use in [EachPair].
func Words[W ~string](words []W) (all []string) {
	for _, w := range words {
		all = append(all, string(w))
	}
	return all
}

// completeChoice sets option o, if it is unset, to the first value that does not add an incompatibility to c.
func completeChoice(c spec.ChosenOptions, in spec.ConfigFileScope, o spec.OptionName, words []string) {
	if _, chosen := c[o]; chosen {
		return
	}
	before := len(incompatibilities(c, in))
	for _, word := range words {
		c[o] = word
		if len(incompatibilities(c, in)) == before {
			return
		}
	}
}

func incompatibilities(c spec.ChosenOptions, in spec.ConfigFileScope) (found []spec.Incompatibility) {
	for _, p := range spec.Incompatibilities(in) {
		if c.Matches(p.A) && c.Matches(p.B) {
			found = append(found, p)
		}
	}
	return found
}
