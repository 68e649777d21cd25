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

// faultKind is how a sensor is wrong for some hours.
type faultKind string

const (
	faultOffset faultKind = "offset" // all readings are off by as much, up or down
	faultNoise  faultKind = "noise"  // normal noise is added to each
)

// faultyRow is a row of the year that is held out; fault numbers the fault that it has a reading of, from 1 on.
type faultyRow struct {
	x     []float32
	fault int
}

// newSite makes the rows that are trained on: what each sensor but the wind's direction and the rain reads, now and an
// hour before.
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
	var x, y []float32 // of all stations
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

// rows makes rows of hours, which have no target.
func (s *stationDataset) rows(hours []air.StationHour) (grid.MadeRows, error) {
	return air.Rows(hours, s.features, "", false)
}

// injectFaults makes the rows of the year that is held out with faults in it: one after another at each station, of one
// sensor each that is drawn, with half to one and a half of the mean time between them. A row is faulty if it is
// another than without them. A quick run has a quarter of the year.
func (s *stationDataset) injectFaults(p injectedFaults, o Options) (rows []faultyRow, err error) {
	faults, n := 0, len(s.features)
	for k, of := range s.streams {
		rng := rand.New(rand.NewPCG(o.Seed, uint64(k)))
		hours := of.HeldOutHours[:o.fullOrQuickCount(len(of.HeldOutHours), len(of.HeldOutHours)/4)]
		ill, latest := slices.Clone(hours), map[int64]int{} // the latest fault up to an hour
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

// withSensorFault returns the readings of an hour with that of a sensor off by so many deviations, on the scale on
// which it is a feature. No sensor reads less than nothing of a pollutant.
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
