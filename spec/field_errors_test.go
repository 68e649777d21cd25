package spec_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/fedmesh/fedmesh/spec"
)

func TestCheck(t *testing.T) {
	var inner spec.ProblemList
	if inner.Err() != nil || inner.ProblemCount() != 0 {
		t.Errorf("nothing is wrong, and yet: %v", inner.Err())
	}
	inner.Require(true, "rounds", "never said")
	inner.Require(false, "rounds", "must be at least 1, but is %d", 0)
	inner.AddError("weights", nil)
	inner.AddError("weights", spec.AgentWeightRule("both").Validate())
	var c spec.ProblemList
	c.AddSectionErrors("round", nil)
	c.AddSectionErrors("round", errors.Join(inner.Err(),
		fmt.Errorf("folder: %w", &spec.FieldError{Key: "seed", Problem: "is gone"}), errors.New("no key")))
	c.AddSectionErrors("", &spec.FieldError{Key: "broker.url", Problem: "is empty"})
	const want = `round.rounds: must be at least 1, but is 0
round.weights: want equal or samples, got "both"
round.seed: is gone
no key
broker.url: is empty`
	if c.ProblemCount() != 5 || c.Err() == nil || c.Err().Error() != want {
		t.Errorf("%d problems:\n%v\nwant:\n%s", c.ProblemCount(), c.Err(), want)
	}
}
