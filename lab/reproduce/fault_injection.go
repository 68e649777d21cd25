package reproduce

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/lab/air"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// faultKind is a kind of sensor fault.
type faultKind string

const (
	faultOffset faultKind = "offset" // a constant offset, positive or negative
	faultNoise  faultKind = "noise"  // normally distributed noise on each reading
)

// faultyRow is a row of the held-out year. fault is the number of the fault that the row contains, from 1; 0 means
// none.
type faultyRow struct {
	x     []float32
	fault int
}

// newSite loads the readings and builds the training rows. A row contains the current and the previous reading of every
// sensor except wind direction and rain.
func newSite(a *anomalyExperiment) (*stationDataset, error) {
	s := &stationDataset{of: a}
	for _, in := range air.Sensors {
		if in.Input.Name != "rain" && len(in.Input.Classes) == 0 {
			s.sensors = append(s.sensors, in.Input)
			s.features = append(s.features, in.Input.Name, in.Input.Name+" lag 1h")
		}
	}
	s.model = learner.Architecture{Kind: spec.ModelAutoencoder, Inputs: len(s.features), Outputs: 1,
		HiddenUnits: a.Hidden, Activation: spec.ActivationTanh, Risk: spec.LossSquared, HasBias: true}
	var err error
	if s.streams, err = air.LoadStations(); err != nil {
		return nil, err
	}
	n := len(s.features)
	var x, y []float32 // rows of all stations
	for _, of := range s.streams {
		made, err := s.rows(of.TrainHours)
		if err != nil {
			return nil, err
		}
		x, y = append(x, made.X...), append(y, made.Y...)
		s.train = append(s.train, learner.NewSamples(n, made.X, made.Y))
	}
	s.scale = learner.ComputeColumnMoments(learner.NewSamples(n, x, y)).Standardization(s.model.Risk, 0)
	s.raw = slices.Collect(slices.Chunk(x, n))
	s.scale.KeepTargetUnscaled()
	for _, rows := range s.train {
		if err := rows.Standardize(s.scale); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// rows builds rows without a target column from hourly readings.
func (s *stationDataset) rows(hours []air.StationHour) (grid.MadeRows, error) {
	return air.Rows(hours, s.features, "", false)
}

// injectFaults returns the rows of the held-out year, or of a quarter of it in a quick run, with simulated faults. At
// each station, one fault follows the other. The gap between two faults is random, from half the mean gap to one and a
// half times the mean gap. Each fault affects a random sensor. A row is faulty if a fault changes the row.
func (s *stationDataset) injectFaults(p injectedFaults, o Options) (rows []faultyRow, err error) {
	faults, n := 0, len(s.features)
	for k, of := range s.streams {
		rng := rand.New(rand.NewPCG(o.Seed, uint64(k)))
		hours := of.HeldOutHours[:o.fullOrQuickCount(len(of.HeldOutHours), len(of.HeldOutHours)/4)]
		// The map latest contains, for each hour, the number of the last fault that started at or before this hour.
		ill, latest := slices.Clone(hours), map[int64]int{}
		for at := s.gap(rng); at+s.of.FaultHours < len(hours); at += s.of.FaultHours + s.gap(rng) {
			faults++
			latest[hours[at].At.UnixNano()] = faults
			j, sign := rng.IntN(len(s.sensors)), float64(1-2*rng.IntN(2))
			for i := range s.of.FaultHours {
				ill[at+i].Readings = s.withSensorFault(ill[at+i].Readings, j, func() float64 {
					if p.kind == faultNoise {
						return p.size * rng.NormFloat64()
					}
					return p.size * sign
				})
			}
		}
		well, err := s.rows(hours)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", of.Station, err)
		}
		made, err := s.rows(ill)
		if err != nil {
			return nil, fmt.Errorf("%s, with faults: %w", of.Station, err)
		}
		last := 0
		for _, h := range hours {
			last = max(last, latest[h.At.UnixNano()])
			latest[h.At.UnixNano()] = last
		}
		for i, at := range made.Times {
			row := faultyRow{x: made.X[i*n:][:n]}
			if !slices.Equal(row.x, well.X[i*n:][:n]) {
				row.fault = latest[at]
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}

func (s *stationDataset) gap(rng *rand.Rand) int {
	return s.of.FaultSpacingHours/2 + rng.IntN(s.of.FaultSpacingHours)
}

// withSensorFault returns a copy of the readings of an hour in which one sensor deviates by by() standard deviations,
// on the scale of the sensor's feature. Pollutants cannot become negative.
func (s *stationDataset) withSensorFault(readings []grid.Reading, sensor int, by func() float64) []grid.Reading {
	in, deviation := s.sensors[sensor], s.scale.Scale[2*sensor]
	readings = slices.Clone(readings)
	for i := range readings {
		if r := &readings[i]; r.Input == in.Name {
			if in.Transform == spec.TransformLog1p {
				r.Value = max(0, math.Expm1(math.Log1p(r.Value)+by()*deviation))
			} else {
				r.Value += by() * deviation
			}
		}
	}
	return readings
}
