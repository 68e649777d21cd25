package scale

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"
)

// Load is what goes on in some rounds of a federation.
type Load struct {
	Rounds     float64
	Hellos     float64 // that came
	Updates    float64 // that were accepted
	Up, Down   float64 // MB of updates to the coordinator, of models to participants
	Recipients float64 // of announcements, each time anew
}

// Sample is a measurement.
type Sample struct {
	Agents, Drawn int
	Model         int // bytes
	Load          Load
	Coordinator   float64 // processor time, s
	Broker        float64
	Seconds       float64 // that it took
}

// Units are costs in seconds of processor time.
type Units struct {
	Round, Hello, Update, MB, Recipient float64
}

// Cost is the processor time of a load, in s.
func (u *Units) Cost(l *Load) float64 {
	return u.Round*l.Rounds + u.Hello*l.Hellos + u.Update*l.Updates + u.MB*(l.Up+l.Down) + u.Recipient*l.Recipients
}

// ofCoordinator leaves of a load what the coordinator bears: it publishes a model once, for all.
func (l Load) ofCoordinator() Load {
	l.Down, l.Recipients = 0, 0
	return l
}

// ofBroker leaves what the broker bears.
func (l Load) ofBroker() Load {
	l.Rounds = 0
	return l
}

// fit returns units of which none is below zero, by the least sum of squared relative errors: it leaves out the most
// negative one, and solves again without it, until there is none.
func fit(loads []Load, took []float64) (Units, error) {
	columns := func(l *Load) []float64 {
		return []float64{l.Rounds, l.Hellos, l.Updates, l.Up + l.Down, l.Recipients}
	}
	var u Units
	unit := []*float64{&u.Round, &u.Hello, &u.Update, &u.MB, &u.Recipient}
	out := map[int]bool{}
	for {
		var in []int
		for k := range unit {
			total := 0.0
			for i := range loads {
				total += columns(&loads[i])[k]
			}
			if !out[k] && total > 0 {
				in = append(in, k)
			}
		}
		if len(in) == 0 || len(loads) < len(in) {
			return Units{}, fmt.Errorf("%d measurements do not determine %d units: measure more federations",
				len(loads), len(in))
		}
		x, err := leastSquares(loads, took, columns, in)
		if err != nil {
			return Units{}, err
		}
		worst := 0
		for i := range x {
			if x[i] < x[worst] {
				worst = i
			}
		}
		if x[worst] < 0 {
			out[in[worst]] = true
			continue
		}
		for i, k := range in {
			*unit[k] = x[i]
		}
		return u, nil
	}
}

// leastSquares solves for the units of some columns, each measurement weighted by the reciprocal of its time.
func leastSquares(loads []Load, took []float64, columns func(*Load) []float64, in []int) ([]float64, error) {
	a, b := mat.NewDense(len(loads), len(in), nil), mat.NewVecDense(len(loads), nil)
	for i := range loads {
		row := columns(&loads[i])
		for j, k := range in {
			a.Set(i, j, row[k]/took[i])
		}
		b.SetVec(i, 1)
	}
	var x mat.VecDense
	if err := x.SolveVec(a, b); err != nil {
		return nil, fmt.Errorf("the loads do not tell the units apart: %w", err)
	}
	return x.RawVector().Data, nil
}

// Fit is what was measured, and what comes of it.
type Fit struct {
	Machine     string
	Coordinator Units
	Broker      Units // Mosquitto's
	Connection  Connection
	Samples     []Sample
	Held        Sample // that the units are held against
	Cluster     Cluster
}

// Cluster is what was measured with a cluster of NATS for a broker, all of its nodes together.
type Cluster struct {
	Nodes      int
	Broker     Units
	Connection Connection
	Samples    []Sample
	Held       Sample
}

// Connection is what an agent that is connected, and does nothing, costs the broker.
type Connection struct {
	Bytes   float64 // of resident memory
	Seconds float64 // of processor time, once
	Idle    float64 // cores in use while nobody says anything, whatever the number of connections
}

// Cost is the processor time of a load that takes so many seconds.
func (c *Cluster) Cost(l Load, seconds float64) float64 {
	l = l.ofBroker()
	return c.Broker.Cost(&l) + c.Connection.Idle*seconds
}

// solve finds the units of the samples, beside what the nodes do anyway. That each node stores what is retained is in
// them: with a unit of its own for a round, those of recipients came out between 0 and 20 µs from run to run.
func (c *Cluster) solve() (err error) {
	var loads []Load
	var took []float64
	for _, s := range c.Samples {
		loads, took = append(loads, s.Load.ofBroker()), append(took, s.Broker-c.Connection.Idle*s.Seconds)
	}
	c.Broker, err = fit(loads, took)
	return err
}

// solve finds the units of the samples.
func (f *Fit) solve() (err error) {
	var coordinators, brokers []Load
	var ofCoordinator, ofBroker []float64
	for _, s := range f.Samples {
		coordinators, brokers = append(coordinators, s.Load.ofCoordinator()), append(brokers, s.Load.ofBroker())
		ofCoordinator, ofBroker = append(ofCoordinator, s.Coordinator), append(ofBroker, s.Broker)
	}
	if f.Coordinator, err = fit(coordinators, ofCoordinator); err != nil {
		return err
	}
	if f.Broker, err = fit(brokers, ofBroker); err != nil {
		return err
	}
	return f.Cluster.solve()
}

// tolerance is how far the formula may be off what was measured.
const tolerance = 0.3

// errors are those of the formula on the federations that it was not fitted to, relative to what was measured.
func (f *Fit) errors() (coordinator, broker, cluster float64) {
	c, b := f.Held.Load.ofCoordinator(), f.Held.Load.ofBroker()
	held := &f.Cluster.Held
	return f.Coordinator.Cost(&c)/f.Held.Coordinator - 1, f.Broker.Cost(&b)/f.Held.Broker - 1,
		f.Cluster.Cost(held.Load, held.Seconds)/held.Broker - 1
}

// check says if the formula is off.
func (f *Fit) check() error {
	c, b, n := f.errors()
	for _, off := range []float64{c, b, n} {
		if !(math.Abs(off) <= tolerance) { // also if it is not a number
			return fmt.Errorf("for %d agents, %d drawn, %d bytes the formula is off by %+.0f %% at the coordinator, "+
				"%+.0f %% at Mosquitto and %+.0f %% at NATS, more than %.0f %%", f.Held.Agents, f.Held.Drawn,
				f.Held.Model, 100*c, 100*b, 100*n, 100*tolerance)
		}
	}
	return nil
}
