package store

import (
	"errors"
	"testing"
)

func TestTrouble(t *testing.T) {
	var x WriteFailures
	full := errors.New("full")
	for i, step := range []struct {
		what        string
		err         error
		began, over bool
	}{
		{"a", nil, false, false},
		{"a", full, true, false},
		{"a", full, false, false},
		{"b", full, true, false},
		{"c", nil, false, false},
		{"a", nil, false, false},
		{"b", nil, false, true},
		{"b", nil, false, false},
		{"a", full, true, false},
		{"a", nil, false, true},
	} {
		if began, over := x.RecordResult(step.what, step.err); began != step.began || over != step.over {
			t.Errorf("step %d: began %v, over %v, want %v, %v", i, began, over, step.began, step.over)
		}
	}
}
