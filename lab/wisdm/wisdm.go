// Package wisdm has the activities of 36 people, by the accelerometers of their phones: SOURCE.md says where they come
// from. 27 of them are devices; the model is scored on the others.
package wisdm

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/csv"
	"fmt"
	"math"
	"strconv"

	"github.com/fedmesh/fedmesh/lab/sim/data"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

//go:embed wisdm.csv.gz
var wisdmGzip []byte

const (
	features = 42
	first    = 3 // column of the first feature, after user, test and label
	most     = 5 // deviations, beyond which a feature is cut off
)

// classes are the activities, by the label that the model has for each.
var classes = map[string]float32{"Downstairs": 0, "Jogging": 1, "Sitting": 2, "Standing": 3, "Upstairs": 4,
	"Walking": 5}

// Model is softmax regression on the features.
func Model() learner.Architecture {
	return learner.Architecture{Kind: spec.ModelSoftmax, Inputs: features, Outputs: len(classes),
		Risk: spec.LossSoftmax, HasBias: true}
}

// Problem is that of 27 devices of equal weight. Its metric accuracy is that on the rows of the 9 others.
func Problem() (*data.Problem[float32], error) { return problem(Model(), false) }

// ProblemWithHeldOutRows is Problem with another model, and with devices that hold out the last 30 % of their rows of
// each activity. In time they come one activity after another, so that the last 30 % of all would be activities that
// were never seen.
func ProblemWithHeldOutRows(model learner.Architecture) (*data.Problem[float32], error) {
	return problem(model, true)
}

func problem(model learner.Architecture, own bool) (*data.Problem[float32], error) {
	rows, err := read()
	if err != nil {
		return nil, fmt.Errorf("wisdm: %w", err)
	}
	mean, deviation := moments(rows, own)
	const out = 100                                  // at that number more than a user's, the rows that it holds out
	x, y := map[int][]float32{}, map[int][]float32{} // by user; those of people without a device at 0
	for _, r := range rows {
		k := r.device()
		if own && r.out && k != 0 {
			k += out
		}
		y[k] = append(y[k], r.label)
		for j, v := range r.x {
			if v != v {
				v = mean[j]
			}
			x[k] = append(x[k], float32(max(-most, min(most, (v-mean[j])/deviation[j]))))
		}
	}
	var held, heldOut []*learner.Samples[float32]
	var names []string
	for k := 1; k <= 36; k++ {
		if y[k] != nil {
			held = append(held, learner.NewSamples(features, x[k], y[k]))
			names = append(names, fmt.Sprintf("user-%02d", k))
			if own {
				heldOut = append(heldOut, learner.NewSamples(features, x[k+out], y[k+out]))
			}
		}
	}
	p, err := data.NewHeld(model, held)
	if err != nil {
		return nil, err
	}
	p.HeldOut = heldOut
	test := learner.NewSamples(features, x[0], y[0])
	p.Labels = names
	p.Metrics = data.Scores(model, test)
	return p, nil
}

// row is a window of ten seconds. A feature that is missing is NaN.
type row struct {
	user  int
	out   bool // of the last 30 % of the user's rows of this activity
	label float32
	x     [features]float64
}

// device is the user, or 0 for one whose rows are held out.
func (r *row) device() int {
	if r.user%4 == 0 {
		return 0
	}
	return r.user
}

func read() (rows []row, err error) {
	unpacked, err := gzip.NewReader(bytes.NewReader(wisdmGzip))
	if err != nil {
		return nil, err
	}
	records, err := csv.NewReader(unpacked).ReadAll()
	if err != nil {
		return nil, err
	}
	for _, record := range records[1:] {
		r := row{out: record[1] == "1", label: classes[record[2]]}
		if r.user, err = strconv.Atoi(record[0]); err != nil {
			return nil, err
		}
		for j, text := range record[first:] {
			r.x[j] = math.NaN()
			if text != "" {
				if r.x[j], err = strconv.ParseFloat(text, 64); err != nil {
					return nil, err
				}
			}
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// moments are means and deviations of the columns over the devices' rows, in which a missing value is the mean.
func moments(rows []row, own bool) (mean, deviation [features]float64) {
	for j := range features {
		n, all, sum, squares := 0., 0., 0., 0.
		for _, r := range rows {
			if r.device() == 0 || own && r.out {
				continue
			}
			if all++; r.x[j] == r.x[j] {
				n, sum = n+1, sum+r.x[j]
			}
		}
		mean[j] = sum / n
		for _, r := range rows {
			if r.device() != 0 && (!own || !r.out) && r.x[j] == r.x[j] {
				squares += (r.x[j] - mean[j]) * (r.x[j] - mean[j])
			}
		}
		deviation[j] = math.Sqrt(squares / all)
	}
	return mean, deviation
}
