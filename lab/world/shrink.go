package world

import (
	"slices"
	"strings"
)

// Shrink returns a plan that fails with the same symptom as p but has fewer and shorter faults. Shrink returns p if p
// does not fail.
func Shrink(p Plan, bugs Bugs) Plan {
	want := symptom(Run(p, bugs, nil).Failure)
	fails := func(q Plan) bool { return want != "" && symptom(Run(q, bugs, nil).Failure) == want }
	for again := true; again; {
		again = false
		for _, q := range smaller(p) {
			if fails(q) {
				p, again = q, true
				break
			}
		}
	}
	return p
}

// symptom returns the text of a failure without the numbers and the time in it.
func symptom(failure string) string {
	_, what, _ := strings.Cut(failure, ": ")
	what, _, _ = strings.Cut(what, "\n")
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, what)
}

// smaller returns plans that are slightly simpler than p. Plans with fewer faults come first.
func smaller(p Plan) (all []Plan) {
	for i := range p.Faults {
		q := p
		q.Faults = slices.Delete(slices.Clone(p.Faults), i, i+1)
		all = append(all, q)
	}
	if p.Hidden > 0 {
		q := p
		q.Hidden = 0
		all = append(all, q)
	}
	if p.Machines > 0 {
		q := p
		q.Machines = 0
		all = append(all, q)
	}
	if p.Standardize {
		q := p
		q.Standardize, q.StandardizeAt = false, 0
		all = append(all, q)
	}
	if p.StandardizeAt > 0 {
		q := p
		q.StandardizeAt = 0
		all = append(all, q)
	}
	if p.Rounds > 1 {
		q := p
		q.Rounds--
		all = append(all, q)
	}
	for i, f := range p.Faults {
		if f.For > 1e9 {
			q := p
			q.Faults = slices.Clone(p.Faults)
			q.Faults[i].For = (f.For / 2).Round(1e6)
			all = append(all, q)
		}
	}
	return all
}
