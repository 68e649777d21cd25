package reproduce

// newLab returns a LabExperiment with the given cases and claims, and default values for all other settings.
func newLab(subject About, cases []LabCase, claims ...LabClaim) *LabExperiment {
	return &LabExperiment{
		Subject: subject,
		Inputs:  10, RegressorVar: 1, NoiseVar: 0.1, StepSize: 0.01, BatchSize: 1,
		Cases: cases, Claims: claims, Runs: 64, Window: 5000,
	}
}

// linearGain returns the experiment on equation (42) of the lecture.
func linearGain() *LabExperiment {
	return newLab(About{"linear-gain", "With homogeneous agents, the steady-state error decreases as 1/K.",
		"lecture (42)"},
		[]LabCase{{1, 1, 1, 0}, {10, 10, 1, 0}, {100, 100, 1, 0}},
		LabClaim{0, 1, true}, LabClaim{1, 2, true})
}

// lab1 returns the experiment on Observation 1 of the lecture.
func lab1() *LabExperiment {
	return newLab(About{"lab-1", "Heterogeneity increases the error even if all agents participate.",
		"lecture, Observation 1"},
		[]LabCase{{100, 100, 1, 0}, {100, 100, 1, 0.1}}, LabClaim{1, 0, true})
}

// lab2 returns the experiment on Observation 2 of the lecture.
func lab2() *LabExperiment {
	return newLab(About{"lab-2",
		"With homogeneous agents, partial participation increases the error in proportion to the absent agents.",
		"lecture, Observation 2"},
		[]LabCase{{100, 100, 1, 0}, {100, 10, 1, 0}}, LabClaim{1, 0, true})
}

// Lab3 returns the experiment on Observation 3 of the lecture.
func Lab3() *LabExperiment {
	return newLab(About{"lab-3", "With homogeneous agents, local steps reduce the error in proportion to their " +
		"number.",
		"lecture, Observation 3"},
		[]LabCase{{100, 10, 1, 0}, {100, 10, 10, 0}}, LabClaim{0, 1, true})
}

// Lab4 returns the experiment on Observation 4 of the lecture.
func Lab4() *LabExperiment {
	return newLab(About{"lab-4", "With heterogeneous agents, ten local steps do not compensate for the absence of " +
		"nine in ten agents.", "lecture, Observation 4"},
		[]LabCase{{100, 100, 1, 0.1}, {100, 10, 10, 0.1}}, LabClaim{1, 0, true})
}

// async returns the experiment on equations (52)–(54) of the lecture.
func async() *LabExperiment {
	return newLab(About{"async", "One agent per round is no better than a single agent, and worse if the agents " +
		"differ.",
		"lecture (52)–(54)"},
		[]LabCase{{100, 1, 1, 0}, {1, 1, 1, 0}, {100, 1, 1, 0.1}},
		LabClaim{0, 1, false}, LabClaim{2, 0, true})
}
