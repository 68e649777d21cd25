package reproduce

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"github.com/fedmesh/fedmesh/lab/plot"
	"github.com/fedmesh/fedmesh/lab/theory"
)

// estimate returns the mean of the squared second eigenvalue |λ₂|² over the graphs of the cell, for one rule.
func (c *spectrumCell) estimate(rule int) estimate {
	mean, half := theory.Interval95(c.secondEigenvalues[rule])
	return estimate{mean, half}
}

// report evaluates the cells and returns the report. The cells must be in the order of s.cells.
func (s *spectrumExperiment) report(cells []*spectrumCell) *Report {
	r := &Report{About: s.About()}
	for k, rule := range spectrumRules {
		for _, c := range cells {
			if !c.hasRuleWeights(k) {
				continue
			}
			e, key := c.estimate(k), rule.key+"_"+c.key()
			r.Values.Set(key, e.mean)
			r.Values.Set(key+"_sd", stat.StdDev(c.secondEigenvalues[k], nil))
			r.Values.Set(key+"_ci95", e.halfWidth)
		}
	}
	for i, c := range cells {
		s.judge(r, c)
		if sparser := i - len(s.Nodes); sparser >= 0 && cells[sparser].kind.key == c.kind.key &&
			cells[sparser].level < c.level {
			before, now := cells[sparser].estimate(0), c.estimate(0)
			r.find(Finding{What: fmt.Sprintf("%v: |λ₂|² is smaller than for %s = %v", c, c.kind.parameter,
				cells[sparser].level), Measured: now.String(),
				Expected: "below " + before.String() + " plus the narrower of the two intervals",
				Holds:    now.mean <= before.mean+min(now.halfWidth, before.halfWidth)})
		}
	}
	s.fit(r, cells)
	for _, kind := range s.kinds() {
		if len(kind.levels) > 0 && len(s.Nodes) > 0 {
			r.figure("spectrum-"+kind.key, s.plotNodes(kind, cells))
			r.figure("spectrum-"+kind.key+"-rules", s.plotRules(kind, cells))
		}
	}
	return r
}

// judge compares a cell with the value in the FedDec paper, if there is one. It also checks that no rule is faster than
// the fastest weights.
func (s *spectrumExperiment) judge(r *Report, c *spectrumCell) {
	best := c.estimate(0)
	if want, ok := documentedEigenvalues[c.key()]; ok {
		r.Values.Set("best_"+c.key()+"_document", want)
		standard, _ := c.documentError(0)
		r.find(Finding{What: c.String() + ": |λ₂|², best constant", Measured: best.String(),
			Expected: fmt.Sprintf("%g in Table 1, as the mean of %d graphs with a standard error of %.2g", want,
				documentedRuns,
				standard),
			Holds: math.Abs(best.mean-want) <= 4*standard})
		r.find(Finding{What: c.String() + ": |λ₂|² below 0.9, so α < 9", Measured: best.String(),
			Expected: "< 0.9", Holds: best.mean < 0.9})
	}
	which, least, others := "fastest weights compared with the others", len(c.secondEigenvalues)-1, spectrumRules
	if !c.hasRuleWeights(least) {
		which, least, others = "best constant weights compared with maximum-degree weights", 0, spectrumRules[2:3]
	}
	worst := 0.0
	for _, other := range others {
		for i, v := range c.secondEigenvalues[slices.Index(spectrumRules, other)] {
			worst = max(worst, c.secondEigenvalues[least][i]-v)
		}
	}
	r.find(Finding{What: fmt.Sprintf("%v: %s, graph by graph", c, which),
		Measured: fmt.Sprintf("larger by at most %.1g", worst),
		Expected: "< 1e-5", Holds: worst < 1e-5})
}

// documentError compares the mean in the FedDec paper with our mean. It returns the standard error of the difference
// (standard), and the difference divided by the standard error (z). It assumes that both means have the same variance,
// and that the paper rounds to two digits.
func (c *spectrumCell) documentError(rule int) (standard, z float64) {
	const rounding = 0.01
	mean, sd := stat.MeanStdDev(c.secondEigenvalues[rule], nil)
	standard = math.Sqrt(sd*sd*(1./documentedRuns+1/float64(len(c.secondEigenvalues[rule]))) + rounding*rounding/12)
	return standard, (documentedEigenvalues[c.key()] - mean) / standard
}

// fit compares the whole table with the FedDec paper. The criterion is the mean deviation of all cells in standard
// errors. Unlike the deviation of a single cell, it can distinguish the best constant weights from other rules.
func (s *spectrumExperiment) fit(r *Report, cells []*spectrumCell) {
	cells = slices.DeleteFunc(slices.Clone(cells),
		func(c *spectrumCell) bool { return documentedEigenvalues[c.key()] == 0 })
	if len(cells) == 0 {
		return
	}
	for k, rule := range spectrumRules {
		mean := 0.0
		for _, c := range cells {
			_, z := c.documentError(k)
			mean += z / float64(len(cells))
		}
		r.Values.Set("table_deviation_"+rule.key, mean)
		if k > 0 {
			continue
		}
		most := 4 / math.Sqrt(float64(len(cells)))
		r.find(Finding{What: fmt.Sprintf("Table 1, %d cells: mean deviation in standard errors, best constant",
			len(cells)),
			Measured: fmt.Sprintf("%.2f", mean), Expected: fmt.Sprintf("0 ± %.2f", most),
			Holds: math.Abs(mean) <= most})
	}
}

// plotNodes plots the result for the best constant weights over the parameter of the graphs. It draws one curve per
// number of nodes, and the values of the FedDec paper as points.
func (s *spectrumExperiment) plotNodes(kind graphKind, cells []*spectrumCell) plot.Figure {
	f := plot.Figure{Title: kind.what + " graphs, best constant weights", X: plot.Axis{Label: kind.parameter},
		Y: plot.Axis{Label: "|λ₂|²"}}
	for _, n := range s.Nodes {
		curve := plot.Curve{Name: fmt.Sprintf("n = %d", n)}
		points := plot.Curve{Name: fmt.Sprintf("n = %d, Table 1", n), MarksOnly: true, SharesPreviousColour: true}
		for _, c := range cells {
			if c.kind.key != kind.key || c.nodes != n {
				continue
			}
			c.estimate(0).appendTo(&curve, c.level)
			if want, ok := documentedEigenvalues[c.key()]; ok {
				points.X, points.Y = append(points.X, c.level), append(points.Y, want)
			}
		}
		f.Curves = append(f.Curves, curve)
		if len(points.X) > 0 {
			f.Curves = append(f.Curves, points)
		}
	}
	return f
}

// plotRules plots the results of all edge weight rules over the parameter of the graphs, for the median number of
// nodes.
func (s *spectrumExperiment) plotRules(kind graphKind, cells []*spectrumCell) plot.Figure {
	sorted := slices.Sorted(slices.Values(s.Nodes))
	n := sorted[len(sorted)/2]
	f := plot.Figure{Title: fmt.Sprintf("%s graphs, n = %d, by weight rule", kind.what, n),
		X: plot.Axis{Label: kind.parameter}, Y: plot.Axis{Label: "|λ₂|²"}}
	for k, rule := range spectrumRules {
		curve := plot.Curve{Name: string(rule.rule)}
		for _, c := range cells {
			if c.kind.key == kind.key && c.nodes == n {
				c.estimate(k).appendTo(&curve, c.level)
			}
		}
		f.Curves = append(f.Curves, curve)
	}
	return f
}
