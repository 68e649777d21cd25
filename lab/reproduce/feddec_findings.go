package reproduce

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/fedmesh/fedmesh/d2d/graph"
	"github.com/fedmesh/fedmesh/lab/sim"
	"github.com/fedmesh/fedmesh/lab/theory"
)

// feddecRiskCurve contains the logarithm of the relative error (f(z̄_t) − f*)/(f(0) − f*) as a function of the local
// step t. f is the loss, f* its minimum and z̄_t the mean model of the agents. For each instance, the curve holds the
// mean over the runs.
type feddecRiskCurve struct {
	serverEvery   int
	radius        int // index of the radius; −1 means no mixing (W = I)
	t             []int
	logRiskRatios [][]float64 // logarithm of the relative error, indexed by record and instance
	// health is the share of iterations in which each link of the first run was up. health is nil if there are no
	// links.
	health []float64
}

func newFedDecTrack(r *sim.Result, fields []feddecInstance, h, radius int) *feddecRiskCurve {
	t := &feddecRiskCurve{serverEvery: h, radius: radius}
	excess := r.Metric("excess_risk").Runs
	per := len(excess) / len(fields)
	for at, iteration := range r.Rounds {
		if iteration%h != 0 {
			continue // skip records that do not follow a server round
		}
		logs := make([]float64, len(fields))
		for run, values := range excess {
			start := fields[run/per].problem.Objective.Excess(make([]float64, len(r.Final[run])))
			logs[run/per] += math.Log(values[at]/start) / float64(per)
		}
		t.t, t.logRiskRatios = append(t.t, iteration), append(t.logRiskRatios, logs)
	}
	if r.Network != nil {
		t.health = r.Network.Health
	}
	return t
}

// last returns the final logarithm of the relative error for each instance.
func (t *feddecRiskCurve) last() []float64 { return t.logRiskRatios[len(t.logRiskRatios)-1] }

// geometric returns the geometric mean of some values, computed from their logarithms. The half-width of the result is
// the distance to the upper end of the 95 % confidence interval.
func geometric(logs []float64) estimate {
	mean, half := theory.Interval95(logs)
	return estimate{math.Exp(mean), math.Exp(mean) * math.Expm1(half)}
}

// minus returns the element-wise difference a − b. For logarithms this is the logarithm of the ratio.
func minus(a, b []float64) []float64 {
	c := make([]float64, len(a))
	for i := range a {
		c[i] = a[i] - b[i]
	}
	return c
}

// report compares the curves. The curves are sorted by the number of steps between server rounds. For each number, the
// curve of FedAvg comes first, followed by the curves of FedDec in the order of the radius.
func (f *feddecExperiment) report(fields []feddecInstance, tracks []*feddecRiskCurve) (*Report, error) {
	r := &Report{About: f.Subject}
	perH := len(f.Radii) + 1
	// ln(error of FedAvg / error of FedDec), indexed by radius, number of steps H and instance
	gains := make([][][]float64, len(f.Radii))
	for i, h := range f.ServerEvery {
		fedavg := tracks[i*perH]
		f.value(r, fmt.Sprintf("fedavg_H%d_t%d", h, fedavg.t[len(fedavg.t)-1]), fedavg.last())
		for j := range f.Radii {
			feddec := tracks[i*perH+1+j]
			f.value(r, fmt.Sprintf("feddec_%s_H%d_t%d", f.name(j), h, feddec.t[len(feddec.t)-1]), feddec.last())
			gains[j] = append(gains[j], minus(fedavg.last(), feddec.last()))
			f.value(r, fmt.Sprintf("ratio_%s_H%d", f.name(j), h), gains[j][i])
		}
	}
	alphas := f.connectivity(r, fields)
	for j, radius := range f.Radii {
		for i, h := range f.ServerEvery {
			f.findRatioAboveOne(r, fmt.Sprintf("r = %v, H = %d: error of FedAvg divided by the error of FedDec", radius,
				h), gains[j][i],
				fmt.Sprintf("> 1, because α is %.3g and thus finite", alphas[j]))
		}
	}
	f.compareGains(r, gains)
	if f.LinkUp < 1 {
		f.linksUp(r, tracks[1:perH])
	}
	if err := f.bound(r, fields, tracks); err != nil {
		return nil, err
	}
	f.plots(r, fields, tracks)
	return r, nil
}

// name returns the name of radius j, as used in the keys of the report.
func (f *feddecExperiment) name(j int) string {
	return "r" + strconv.FormatFloat(f.Radii[j], 'g', -1, 64)
}

func (f *feddecExperiment) value(r *Report, key string, logs []float64) {
	e := geometric(logs)
	r.Values.Set(key, e.mean)
	r.Values.Set(key+"_ci95", e.halfWidth)
}

// findRatioAboveOne adds a finding that a geometric mean of ratios exceeds 1. logs contains the logarithms of the
// ratios.
func (f *feddecExperiment) findRatioAboveOne(r *Report, what string, logs []float64, expected string) {
	mean, half := theory.Interval95(logs)
	r.find(Finding{What: what, Measured: fmt.Sprintf("×%.3g (%.3g to %.3g)", math.Exp(mean), math.Exp(mean-half),
		math.Exp(mean+half)),
		Expected: expected, Holds: mean > half})
}

// connectivity stores the second eigenvalue |λ̂₂| of the mixing matrix and the constant α of the FedDec paper, averaged
// over the instances. connectivity returns α for each radius.
func (f *feddecExperiment) connectivity(r *Report, fields []feddecInstance) []float64 {
	var alphas []float64
	for j := range f.Radii {
		var second, alpha []float64
		for _, in := range fields {
			l := in.mixings[j].SecondEigenvalue(f.LinkUp)
			second, alpha = append(second, l), append(alpha, graph.MixingAlphaOfEigenvalue(l))
		}
		l, _ := theory.Interval95(second)
		a, _ := theory.Interval95(alpha)
		r.Values.Set("lambda2_"+f.name(j), l)
		r.Values.Set("alpha_"+f.name(j), a)
		alphas = append(alphas, a)
	}
	return alphas
}

// linksUp adds a finding that the links were up with the expected frequency.
func (f *feddecExperiment) linksUp(r *Report, tracks []*feddecRiskCurve) {
	for _, t := range tracks {
		share := 0.0
		for _, up := range t.health {
			share += up / float64(len(t.health))
		}
		half := 1.96 * math.Sqrt(f.LinkUp*(1-f.LinkUp)/float64(len(t.health)*f.Iterations))
		r.find(Finding{What: fmt.Sprintf("r = %v: share of working links per step", f.Radii[t.radius]),
			Measured: estimate{share, half}.String(),
			Expected: fmt.Sprint(f.LinkUp), Holds: agreesWithinShare(estimate{share, half}, f.LinkUp, 0)})
	}
}

// compareGains adds the findings that the advantage of FedDec grows with the number of steps between server rounds and
// with the radius, compared within each instance.
func (f *feddecExperiment) compareGains(r *Report, gains [][][]float64) {
	byH, byRadius := order(f.ServerEvery), order(f.Radii)
	for j, radius := range f.Radii {
		for n := 1; n < len(byH); n++ {
			less, more := byH[n-1], byH[n]
			f.findRatioAboveOne(r, fmt.Sprintf("r = %v: gain at H = %d divided by the gain at H = %d", radius,
				f.ServerEvery[more],
				f.ServerEvery[less]),
				minus(gains[j][more], gains[j][less]), "> 1")
		}
	}
	for i, h := range f.ServerEvery {
		for n := 1; n < len(byRadius); n++ {
			less, more := byRadius[n-1], byRadius[n]
			f.findRatioAboveOne(r, fmt.Sprintf("H = %d: gain at r = %v divided by the gain at r = %v", h, f.Radii[more],
				f.Radii[less]),
				minus(gains[more][i], gains[less][i]), "> 1")
		}
	}
}

// order returns the indices of the values in ascending order of the values.
func order[T int | float64](values []T) []int {
	places := make([]int, len(values))
	for i := range places {
		places[i] = i
	}
	slices.SortFunc(places, func(a, b int) int {
		switch {
		case values[a] < values[b]:
			return -1
		case values[a] > values[b]:
			return 1
		}
		return 0
	})
	return places
}
