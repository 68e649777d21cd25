package reproduce

// newLab is the instance of the experiments lab-1, lab-2 and so on, `linear-gain` and `async`, but for what is given.
func newLab(subject About, cases []LabCase, claims ...LabClaim) *LabExperiment {
	return &LabExperiment{
		Subject: subject,
		Inputs:  10, RegressorVar: 1, NoiseVar: 0.1, StepSize: 0.01, BatchSize: 1,
		Cases: cases, Claims: claims, Runs: 64, Window: 5000,
	}
}

// linearGain is lecture (42).
func linearGain() *LabExperiment {
	return newLab(About{"linear-gain", "With homogeneous agents the steady-state error falls as 1/K.", "lecture (42)"},
		[]LabCase{{1, 1, 1, 0}, {10, 10, 1, 0}, {100, 100, 1, 0}},
		LabClaim{0, 1, true}, LabClaim{1, 2, true})
}

// lab1 is lecture, Observation 1.
func lab1() *LabExperiment {
	return newLab(About{"lab-1", "Heterogeneity hurts even when all agents take part.", "lecture, Observation 1"},
		[]LabCase{{100, 100, 1, 0}, {100, 100, 1, 0.1}}, LabClaim{1, 0, true})
}

// lab2 is lecture, Observation 2.
func lab2() *LabExperiment {
	return newLab(About{"lab-2",
		"With homogeneous agents, partial participation costs in proportion to who stays away.",
		"lecture, Observation 2"},
		[]LabCase{{100, 100, 1, 0}, {100, 10, 1, 0}}, LabClaim{1, 0, true})
}

// Lab3 is lecture, Observation 3.
func Lab3() *LabExperiment {
	return newLab(About{"lab-3", "With homogeneous agents, local steps pay in proportion to their number.",
		"lecture, Observation 3"},
		[]LabCase{{100, 10, 1, 0}, {100, 10, 10, 0}}, LabClaim{0, 1, true})
}

// Lab4 is lecture, Observation 4.
func Lab4() *LabExperiment {
	return newLab(About{"lab-4", "With heterogeneous agents, ten local steps do not make up for nine agents of ten " +
		"that stay away.", "lecture, Observation 4"},
		[]LabCase{{100, 100, 1, 0.1}, {100, 10, 10, 0.1}}, LabClaim{1, 0, true})
}

// async is lecture (52)–(54).
func async() *LabExperiment {
	return newLab(About{"async", "One agent a round is no better than one agent alone, and worse where agents differ.",
		"lecture (52)–(54)"},
		[]LabCase{{100, 1, 1, 0}, {1, 1, 1, 0}, {100, 1, 1, 0.1}},
		LabClaim{0, 1, false}, LabClaim{2, 0, true})
}
