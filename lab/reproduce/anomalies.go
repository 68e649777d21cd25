package reproduce

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/fedmesh/fedmesh/lab/air"
	"github.com/fedmesh/fedmesh/lab/plot"
	"github.com/fedmesh/fedmesh/lab/sim"
	"github.com/fedmesh/fedmesh/lab/sim/data"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// anomalyExperiment trains an autoencoder at twelve stations, on a quarter of a year each, and measures how well it
// detects the faults that injectFaults adds to readings of another year. The baseline detector is a limit on the
// deviation of each column.
type anomalyExperiment struct {
	Hidden            []int   `json:"hidden"`
	Participants      int     `json:"participants"` // participants per round, of 12 devices
	StepSize          float64 `json:"step_size"`
	BatchSize         int     `json:"batch_size"`
	Steps             int     `json:"local_steps"`
	Rounds            int     `json:"rounds"`
	Runs              int     `json:"runs"`
	QuietShare        float64 `json:"usual"` // share of the training rows that must not raise an alarm
	FaultHours        int     `json:"hours"` // duration of a fault in hours
	FaultSpacingHours int     `json:"every"` // mean time between two faults of a station, in hours
}

func defaultAnomalies() *anomalyExperiment {
	return &anomalyExperiment{Hidden: []int{24, 8, 24}, Participants: 6, StepSize: 0.3, BatchSize: 32, Steps: 50,
		Rounds: 150,
		Runs:   4, QuietShare: 0.999, FaultHours: 6, FaultSpacingHours: 150}
}

// About implements Experiment.
func (a *anomalyExperiment) About() About {
	return About{"anomalies", "An autoencoder trained on unlabelled rows of twelve stations detects sensor faults " +
		"that a bound on each reading misses.",
		"Hinton and Salakhutdinov 2006; data: Zhang et al. 2017"}
}

// judgedFaults lists the kinds of faults whose detection the experiment checks, with the minimum share of detected
// faults (recall). This minimum far exceeds the baseline's recall.
var judgedFaults = []struct {
	injectedFaults
	least float64
}{{injectedFaults{kind: faultOffset, size: 5}, 0.7}, {injectedFaults{kind: faultNoise, size: 3}, 0.65}}

const (
	minRecallFactor = 4    // minimum recall divided by the recall of the baseline
	minPrecision    = 0.85 // minimum share of alarm rows that contain a fault
)

// injectedFaults holds the faults of one kind and size at all stations.
type injectedFaults struct {
	kind faultKind
	size float64 // size in standard deviations of the sensor's feature
	rows []faultyRow
}

func (p injectedFaults) name(figure string) string {
	return fmt.Sprintf("%s_%s_%g", figure, p.kind, p.size)
}

// Run implements Experiment.
func (a *anomalyExperiment) Run(ctx context.Context, o Options) (*Report, error) {
	r := &Report{About: a.About()}
	s, err := newSite(a)
	if err != nil {
		return nil, err
	}
	var all []injectedFaults
	for _, p := range []injectedFaults{{kind: faultOffset, size: 3}, {kind: faultOffset, size: 5}, {kind: faultNoise,
		size: 3},
		{kind: faultNoise, size: 5}} {
		if p.rows, err = s.injectFaults(p, o); err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	problem, err := data.NewHeld(s.model, s.train)
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		for _, figure := range []string{"recall", "precision"} {
			problem.Metrics = append(problem.Metrics, data.Metric{Name: p.name(figure),
				Of: func(w []float64) float64 { return s.autoencoderDetector(w).scoreDetection(p.rows)[figure] }})
		}
	}
	e := sim.Default()
	e.Seed, e.Runs, e.Rounds, e.Record = o.Seed, o.fullOrQuickCount(a.Runs, 2), a.Rounds, a.Rounds
	e.Precision, e.Participants.Count, e.WeighRows, e.Weighting = sim.Float32, a.Participants, true,
		spec.WeightInServerMean
	e.LocalSteps, e.BatchSize = sim.Each(float64(a.Steps)), sim.Each(float64(a.BatchSize))
	e.StepSize.Constant, e.StepSize.NormalizesStepSize = a.StepSize, false
	got, err := sim.RunInstances(ctx, e,
		func(int) (sim.Instance[float32], error) { return sim.Instance[float32]{Problem: problem}, nil }, nil)
	if err != nil {
		return nil, fmt.Errorf("anomalies: %w", err)
	}
	a.report(r, s.deviationDetector(), all, func(name string) estimate { return measured(got.At(name, a.Rounds)) })
	return r, nil
}

// report adds the results and the findings to the report.
func (a *anomalyExperiment) report(r *Report, bound detector, all []injectedFaults, of func(name string) estimate) {
	figure := plot.Figure{Title: "Detected faults", X: plot.Axis{Label: "size of the fault in standard " +
		"deviations"},
		Y: plot.Axis{Label: "share of the faults detected"}}
	draw := func(name string, size, share float64) {
		i := slices.IndexFunc(figure.Curves, func(c plot.Curve) bool { return c.Name == name })
		if i < 0 {
			i, figure.Curves = len(figure.Curves), append(figure.Curves, plot.Curve{Name: name})
		}
		c := &figure.Curves[i]
		c.X, c.Y = append(c.X, size), append(c.Y, share)
	}
	for _, p := range all {
		recall, precision, alone := of(p.name("recall")), of(p.name("precision")), bound.scoreDetection(p.rows)
		for _, v := range []struct {
			figure string
			estimate
		}{{"recall", recall}, {"precision", precision}} {
			r.Values.Set(p.name(v.figure), v.mean)
			r.Values.Set(p.name(v.figure)+"_ci95", v.halfWidth)
			r.Values.Set(p.name("bound_"+v.figure), alone[v.figure])
		}
		draw(string(p.kind)+", autoencoder", p.size, recall.mean)
		draw(string(p.kind)+", bound on each column", p.size, alone["recall"])
		for _, j := range judgedFaults {
			if p.kind != j.kind || p.size != j.size {
				continue
			}
			what := fmt.Sprintf("%s of %g standard deviations over %d hours: ", p.kind, p.size, a.FaultHours)
			r.find(Finding{What: what + "share of the faults detected", Measured: recall.String(),
				Expected: fmt.Sprintf("at least %g, and at least %d times the value %.2g of a bound on each column",
					j.least,
					minRecallFactor, alone["recall"]),
				Holds: recall.mean >= j.least && recall.mean >= minRecallFactor*alone["recall"]})
			r.find(Finding{What: what + "share of correct alarms", Measured: precision.String(),
				Expected: fmt.Sprintf("at least %g", minPrecision), Holds: precision.mean >= minPrecision})
		}
	}
	r.figure("anomalies", figure)
}

// detector computes an anomaly score of a row, in the units of the data. It raises an alarm if the score exceeds a
// threshold.
type detector struct {
	anomalyScore func(row []float32) float64
	threshold    float64
}

// scoreDetection returns the recall and the precision of the detector. Recall is the share of faults for which at least
// one row raises an alarm. Precision is the share of rows with an alarm that contain a fault.
func (d detector) scoreDetection(rows []faultyRow) map[string]float64 {
	faults, found, alarms, right := map[int]bool{}, map[int]bool{}, 0.0, 0.0
	for _, row := range rows {
		if row.fault > 0 {
			faults[row.fault] = true
		}
		if !(d.anomalyScore(row.x) > d.threshold) {
			continue
		}
		if alarms++; row.fault > 0 {
			right++
			found[row.fault] = true
		}
	}
	return map[string]float64{"recall": float64(len(found)) / float64(len(faults)),
		"precision": right / max(1, alarms)}
}

// stationDataset holds the readings of the twelve stations as rows.
type stationDataset struct {
	of       *anomalyExperiment
	model    learner.Architecture
	features []string
	sensors  []spec.InputSeries
	streams  []air.StationData
	train    []*learner.Samples[float32] // standardised training rows of each station
	scale    learner.Standardization
	raw      [][]float32 // unstandardised training rows of all stations
}

// autoencoderDetector returns a detector whose score is the reconstruction error of an autoencoder with parameters w.
func (s *stationDataset) autoencoderDetector(w []float64) detector {
	narrow := make([]float32, len(w))
	for i, v := range w {
		narrow[i] = float32(v)
	}
	p, err := learner.NewPredictor(s.model, s.scale, narrow)
	if err != nil {
		panic(err) // cannot fail: w belongs to this model
	}
	d := detector{anomalyScore: func(row []float32) float64 { return p.Predict(row).Value }}
	d.threshold = s.alarmThreshold(d.anomalyScore)
	return d
}

// deviationDetector returns the baseline detector. The score of a row is its largest deviation from a column mean, in
// standard deviations.
func (s *stationDataset) deviationDetector() detector {
	d := detector{anomalyScore: func(row []float32) float64 {
		most := 0.0
		for j, v := range row {
			most = max(most, math.Abs(float64(v)-s.scale.Mean[j])/s.scale.Scale[j])
		}
		return most
	}}
	d.threshold = s.alarmThreshold(d.anomalyScore)
	return d
}

// alarmThreshold returns the threshold that a share QuietShare of the training rows does not exceed. It is rounded up
// to the end of a score bin.
func (s *stationDataset) alarmThreshold(of func(row []float32) float64) float64 {
	var bins [learner.ResidualBins]int
	for _, row := range s.raw {
		bins[learner.ResidualBinIndex(of(row))]++
	}
	below := 0
	for i, n := range bins {
		if below += n; float64(below) >= s.of.QuietShare*float64(len(s.raw)) {
			return learner.ResidualBinUpperEnd(i)
		}
	}
	return math.Inf(1)
}
