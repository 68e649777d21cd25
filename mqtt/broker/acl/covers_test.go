package acl

import "testing"

// TestCovers checks filterCovers with rule patterns that do not occur in the current rule table.
func TestCovers(t *testing.T) {
	for _, c := range []struct {
		rule, filter string
		want         bool
	}{
		{"a/+", "a/b", true},
		{"a/+", "a/+", true},
		{"a/+", "a/#", false},
		{"a/+", "a", false},
		{"a/+", "a/b/c", false},
		{"a/+/c", "a/+/c", true},
		{"a/+/c", "a/#", false},
		{"a/+/#", "a/#", false},
		{"a/+/#", "a/b", true},
		{"a/#", "a", true},
		{"a/#", "#", false},
		{"#", "#", true},
		{"+", "#", false},
		{"+", "a", true},
		{"%u", "me", true},
		{"%u", "+", false},
		{"%u", "#", false},
		{"%u", "%u", false},
	} {
		if got := filterCovers(c.rule, "me", c.filter); got != c.want {
			t.Errorf("%s covers %s: %v, want %v", c.rule, c.filter, got, c.want)
		}
	}
}
