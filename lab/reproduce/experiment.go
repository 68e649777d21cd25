package reproduce

import "context"

// Experiment is one claim of the documents with the numbers to test it on.
type Experiment interface {
	// About is what it is about; it does not depend on the numbers.
	About() About
	// Run measures and judges. The same numbers, seed and Quick give the same report at any number of cores. The error
	// is that of numbers that make no sense, or of ctx.
	Run(ctx context.Context, o Options) (*Report, error)
}

// About names a claim.
type About struct {
	ID     string `json:"id"`
	Claim  string `json:"claim"`  // a sentence
	Source string `json:"source"` // the place in the documents
}

// Options is how to run an experiment.
type Options struct {
	Quick bool   // fewer runs, wider intervals: seconds instead of minutes
	Seed  uint64 // of everything random
	// Missing is how many experiments were not run to their end, since they were interrupted: for the report.
	Missing int
}

// fullOrQuickCount is a number of runs, or rounds: full, or less in a quick run.
func (o Options) fullOrQuickCount(full, quick int) int {
	if o.Quick {
		return min(full, quick)
	}
	return full
}
