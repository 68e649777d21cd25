package reproduce

import (
	"math"
	"testing"

	"github.com/fedmesh/fedmesh/spec"
)

// TestPlanted checks the simulated sensor faults. A fault must affect only the rows of its own hours and the row of the
// following hour, whose lag feature contains the last hour of the fault. Readings must be wrong by the size of the
// fault. The numbers of the faults must have no gaps.
func TestPlanted(t *testing.T) {
	if testing.Short() {
		t.Skip("a year of readings of twelve stations")
	}
	s, err := newSite(defaultAnomalies())
	if err != nil {
		t.Fatal(err)
	}
	if len(s.features) != 20 || len(s.train) != 12 {
		t.Fatalf("%d features, %d stations", len(s.features), len(s.train))
	}
	rows, err := s.injectFaults(injectedFaults{kind: faultOffset, size: 5}, Options{Quick: true, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	perFault, last := map[int]int{}, 0
	for _, row := range rows {
		if row.fault > 0 {
			perFault[row.fault]++
			last = max(last, row.fault)
		}
	}
	// A fault lasts six hours, and each station has one fault per 156 hours on average. Some faults fall into missing
	// readings, and a fault may not change a pollutant whose value is zero.
	if hours := 12 * 8784 / 4; last < hours/156*9/10 || last > hours/156*11/10 || len(perFault) < last*85/100 {
		t.Errorf("%d faults, %d of them in rows; want one in 156 of %d hours", last, len(perFault), hours)
	}
	whole := 0
	for _, n := range perFault {
		if n == 7 {
			whole++
		} else if n > 10 { // three more hours, in which the last reading replaces missing readings
			t.Errorf("a fault of six hours is in %d rows", n)
		}
	}
	if whole < len(perFault)/2 {
		t.Errorf("%d of %d faults are in seven rows", whole, len(perFault))
	}
}

// TestWrong checks the size of a faulty reading. The reading must be wrong by the given number of standard deviations
// of its feature, which is logarithmic for pollutants. A faulty reading must not be negative.
func TestWrong(t *testing.T) {
	if testing.Short() {
		t.Skip("a year of readings of twelve stations")
	}
	s, err := newSite(defaultAnomalies())
	if err != nil {
		t.Fatal(err)
	}
	for j, in := range s.sensors {
		hour := s.streams[0].HeldOutHours[100]
		for _, size := range []float64{2, -50} {
			got := s.withSensorFault(hour.Readings, j, func() float64 { return size })
			for i, r := range hour.Readings {
				before, after, want := r.Value, got[i].Value, 0.0
				if in.Name == r.Input {
					want = size * s.scale.Scale[2*j]
				}
				if in.Transform == spec.TransformLog1p {
					before, after = math.Log1p(before), math.Log1p(after)
					want = max(want, -before)
				}
				if math.Abs(after-before-want) > 1e-9*max(1, math.Abs(before), math.Abs(want)) {
					t.Errorf("%s: %v became %v with a fault of %v in %s", r.Input, r.Value, got[i].Value, size, in.Name)
				}
			}
		}
	}
}

// TestAnomaliesBlind checks that the experiment refutes its claim if the autoencoder is not trained.
func TestAnomaliesBlind(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole experiment")
	}
	a := defaultAnomalies()
	a.Rounds, a.Steps = 1, 1
	r, err := a.Run(t.Context(), Options{Quick: true, Seed: 1})
	if err != nil || r.Holds {
		t.Errorf("%v; %+v", err, r)
	}
}
