package reproduce

import "context"

// Experiment is a claim of the documents with the settings to test it.
type Experiment interface {
	// About describes the experiment. It does not depend on the settings.
	About() About
	// Run measures and evaluates the claim. The same settings, seed and Quick give the same report on any number of
	// cores. It returns an error if the settings are invalid or ctx ends.
	Run(ctx context.Context, o Options) (*Report, error)
}

// About describes a claim.
type About struct {
	ID     string `json:"id"`
	Claim  string `json:"claim"`  // one sentence
	Source string `json:"source"` // reference to the documents
}

// Options configures the run of an experiment.
type Options struct {
	Quick bool   // fewer runs and wider intervals: seconds instead of minutes
	Seed  uint64 // seed of all randomness
	// Missing is the number of interrupted experiments, for the report.
	Missing int
}

// fullOrQuickCount returns full, or at most quick in a quick run.
func (o Options) fullOrQuickCount(full, quick int) int {
	if o.Quick {
		return min(full, quick)
	}
	return full
}
