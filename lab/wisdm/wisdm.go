// Package wisdm contains accelerometer data of 36 people, recorded with phones during six activities. SOURCE.md
// describes the origin. The data of 27 people are training data, one device per person. The data of the other 9 people
// are test data.
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
	first    = 3 // column of the first feature, after the columns user, test and label
	most     = 5 // maximum absolute value of a standardised feature, in standard deviations
)

// classes maps the name of each activity to its class number.
var classes = map[string]float32{"Downstairs": 0, "Jogging": 1, "Sitting": 2, "Standing": 3, "Upstairs": 4,
	"Walking": 5}

// Model returns the architecture of a softmax regression on the features.
func Model() learner.Architecture {
	return learner.Architecture{Kind: spec.ModelSoftmax, Inputs: features, Outputs: len(classes),
		Risk: spec.LossSoftmax, HasBias: true}
}

// Problem returns a learning problem with 27 devices of equal weight. The accuracy metric is computed on the rows of
// the other 9 people.
func Problem() (*data.Problem[float32], error) { return problem(Model(), false) }

// ProblemWithHeldOutRows returns the same problem as Problem with another model. In addition, each device holds out the
// last 30 % of its rows of each activity. Rows are selected per activity, because they are sorted by activity and the
// last 30 % of all rows would contain only some activities.
func ProblemWithHeldOutRows(model learner.Architecture) (*data.Problem[float32], error) {
	return problem(model, true)
}

func problem(model learner.Architecture, own bool) (*data.Problem[float32], error) {
	rows, err := read()
	if err != nil {
		return nil, fmt.Errorf("wisdm: %w", err)
	}
	mean, deviation := moments(rows, own)
	const out = 100 // added to the number of a person to form the key of the person's held-out rows
	// The maps are keyed by person. Key 0 holds the rows of all test persons.
	x, y := map[int][]float32{}, map[int][]float32{}
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

// row contains the features of one time window of ten seconds. A missing feature is NaN.
type row struct {
	user  int
	out   bool // true if the row is among the last 30 % of the person's rows of this activity
	label float32
	x     [features]float64
}

// device returns the number of the person, or 0 if the rows of the person are test data.
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

// moments returns the mean and the standard deviation of each column over the rows of all devices. Missing values are
// replaced by the mean of the column.
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
