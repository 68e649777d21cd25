package scale

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"
)

// Load is the work in some rounds of a federation.
type Load struct {
	Rounds     float64
	Hellos     float64 // number of hello messages that the coordinator received
	Updates    float64 // number of updates that the coordinator accepted
	Up, Down   float64 // MB of updates sent to the coordinator (Up) and of models sent to participants (Down)
	Recipients float64 // announcements delivered, summed over all agents
}

// Sample is a measurement over a number of rounds: the load and the CPU time that it used.
type Sample struct {
	Agents, Drawn int
	Model         int // size of the model in bytes
	Load          Load
	Coordinator   float64 // CPU time of the coordinator in seconds
	Broker        float64
	Seconds       float64 // elapsed time in seconds
}

// Units holds the CPU time in seconds that one unit of each kind of load costs.
type Units struct {
	Round, Hello, Update, MB, Recipient float64
}

// Cost returns the CPU time of a load in seconds.
func (u *Units) Cost(l *Load) float64 {
	return u.Round*l.Rounds + u.Hello*l.Hellos + u.Update*l.Updates + u.MB*(l.Up+l.Down) + u.Recipient*l.Recipients
}

// ofCoordinator returns the load without Down and Recipients, because the coordinator publishes a model once for all
// agents.
func (l Load) ofCoordinator() Load {
	l.Down, l.Recipients = 0, 0
	return l
}

// ofBroker returns the part of a load that causes work for the broker.
func (l Load) ofBroker() Load {
	l.Rounds = 0
	return l
}

// fit returns the non-negative unit costs with the smallest sum of squared relative errors. fit solves the problem
// repeatedly. After each solution, it excludes the kind of load with the most negative unit cost.
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
			return Units{}, fmt.Errorf("%d measurements are too few to fit %d unit costs: measure more federations",
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

// leastSquares returns the unit costs of the columns with the indices `in`. It divides each measurement by its measured
// time and so minimises relative errors.
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
		return nil, fmt.Errorf("the measured loads are too similar to fit the unit costs: %w", err)
	}
	return x.RawVector().Data, nil
}

// Fit contains the measurements and the unit costs that are fitted to them.
type Fit struct {
	Machine     string
	Coordinator Units
	Broker      Units // fitted unit costs of Mosquitto
	Connection  Connection
	Samples     []Sample
	Held        Sample // measurement that is not used for fitting and checks the result
	Cluster     Cluster
}

// Cluster contains the measurements with a cluster of NATS as the broker, for all of its nodes together.
type Cluster struct {
	Nodes      int
	Broker     Units
	Connection Connection
	Samples    []Sample
	Held       Sample
}

// Connection is the cost of idle agents for the broker.
type Connection struct {
	Bytes   float64 // resident memory of one connection in bytes
	Seconds float64 // CPU time to establish one connection, in seconds
	Idle    float64 // CPU cores that the broker uses without any traffic
}

// Cost returns the broker's CPU time in seconds for a load, including the idle load of the cluster for the given
// duration in seconds.
func (c *Cluster) Cost(l Load, seconds float64) float64 {
	l = l.ofBroker()
	return c.Broker.Cost(&l) + c.Connection.Idle*seconds
}

// solve fits the unit costs of the cluster after it has subtracted the idle load of the nodes. It does not fit a cost
// per round, because with this additional unknown, the fitted cost per recipient varied between 0 and 20 µs from run to
// run.
func (c *Cluster) solve() (err error) {
	var loads []Load
	var took []float64
	for _, s := range c.Samples {
		loads, took = append(loads, s.Load.ofBroker()), append(took, s.Broker-c.Connection.Idle*s.Seconds)
	}
	c.Broker, err = fit(loads, took)
	return err
}

// solve fits the unit costs of the coordinator, of Mosquitto and of the NATS cluster.
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

// tolerance is the largest accepted relative error of a predicted CPU time.
const tolerance = 0.3

// errors returns the relative errors of the predicted CPU times for the measurements that were not used for the fit.
func (f *Fit) errors() (coordinator, broker, cluster float64) {
	c, b := f.Held.Load.ofCoordinator(), f.Held.Load.ofBroker()
	held := &f.Cluster.Held
	return f.Coordinator.Cost(&c)/f.Held.Coordinator - 1, f.Broker.Cost(&b)/f.Held.Broker - 1,
		f.Cluster.Cost(held.Load, held.Seconds)/held.Broker - 1
}

// check returns an error if the relative error of a prediction exceeds the tolerance.
func (f *Fit) check() error {
	c, b, n := f.errors()
	for _, off := range []float64{c, b, n} {
		if !(math.Abs(off) <= tolerance) { // This form of the comparison also rejects NaN.
			return fmt.Errorf("for %d agents, %d drawn, %d bytes the predicted cost is wrong by %+.0f %% "+
				"(coordinator), %+.0f %% (Mosquitto) and %+.0f %% (NATS); the limit is %.0f %%", f.Held.Agents,
				f.Held.Drawn, f.Held.Model, 100*c, 100*b, 100*n, 100*tolerance)
		}
	}
	return nil
}
