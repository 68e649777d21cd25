package reproduce

import "context"

// Experiment tests a claim of a publication. Its fields are the settings of the test.
type Experiment interface {
	// About describes the experiment. About does not depend on the settings.
	About() About
	// Run measures and evaluates the claim. The same settings, seed and Quick give the same report on any number of
	// cores. It returns an error if the settings are invalid or ctx ends.
	Run(ctx context.Context, o Options) (*Report, error)
}

// About describes an experiment: the id, the claim and the source of the claim.
type About struct {
	ID     string `json:"id"`
	Claim  string `json:"claim"`  // the claim in one sentence
	Source string `json:"source"` // publication that contains the claim, and the place of the claim in it
}

// Options configures the run of an experiment.
type Options struct {
	Quick bool   // true for fewer runs and wider intervals, which takes seconds instead of minutes
	Seed  uint64 // seed of all randomness
	// Missing is the number of experiments that were interrupted and are not in the report.
	Missing int
}

// fullOrQuickCount returns full or, in a quick run, the smaller of full and quick.
func (o Options) fullOrQuickCount(full, quick int) int {
	if o.Quick {
		return min(full, quick)
	}
	return full
}
