package reproduce

import (
	"fmt"
	"slices"
	"strings"
)

// All returns every experiment with its default settings, in the order of docs/EXPERIMENTS.md.
func All() []Experiment {
	return []Experiment{
		linearGain(), lab1(), lab2(), Lab3(), Lab4(), async(), defaultBias(), defaultSampling(), defaultMSD(),
		defaultBound(), defaultToy(),
		defaultSaddle(), defaultFedDec(), defaultFedDecFailures(), defaultSpectrum(), defaultRobust(),
		defaultPersonal(), defaultAnomalies(), defaultWindows(),
	}
}

// ExternalDataExperiments returns the experiments that need data sets from outside the project. Such an experiment runs
// only when the user names it.
func ExternalDataExperiments() []Experiment {
	return []Experiment{defaultHAR(), defaultFashion(), defaultFashionRules()}
}

// Select returns the experiments with the given ids, without duplicates, in the order of All and
// ExternalDataExperiments. Without ids it returns All. The error for an unknown id lists the known ids.
func Select(ids []string) ([]Experiment, error) {
	all := All()
	if len(ids) == 0 {
		return all, nil
	}
	all = append(all, ExternalDataExperiments()...)
	var known []string
	var chosen []Experiment
	for _, e := range all {
		id := e.About().ID
		known = append(known, id)
		if slices.Contains(ids, id) {
			chosen = append(chosen, e)
		}
	}
	for _, id := range ids {
		if !slices.Contains(known, id) {
			return nil, fmt.Errorf("unknown experiment %q; available experiments: %s", id, strings.Join(known, ", "))
		}
	}
	return chosen, nil
}
