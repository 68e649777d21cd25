// Package learner races local steps of package learner against the same steps in numpy: `make bench-learner`.
package learner
