// Package datasets reads data sets that are not part of the project because of their licences or their size.
package datasets

import (
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/fedmesh/fedmesh/lab/sim/data"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// heldOutPeople contains the people whose rows are used only for evaluation. They are the test subjects chosen by the
// authors of the data set.
var heldOutPeople = map[int]bool{2: true, 4: true, 9: true, 10: true, 12: true, 13: true, 18: true, 20: true, 24: true}

// harColumns is the number of columns before the features: subject, test and label.
const harColumns = 3

// HAR reads the UCI data set "Human Activity Recognition Using Smartphones" from a CSV file, which may be compressed
// with gzip. The columns are subject, test (not used) and label (1 to 6), followed by the features.
//
// Each of 21 people becomes a device. All devices have the same weight per row. The features are standardised by the
// moments of these devices and limited to ±6. The metric is the accuracy on the rows of the other 9 people.
func HAR(path string) (*data.Problem[float32], error) {
	rows, err := readHAR(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	const most = 6
	inputs := len(rows[0].x)
	mean, deviation := make([]float64, inputs), make([]float64, inputs)
	n := 0.0
	for _, r := range rows {
		if !heldOutPeople[r.subject] {
			n++
			for j, v := range r.x {
				mean[j] += v
				deviation[j] += v * v
			}
		}
	}
	for j := range mean {
		mean[j] /= n
		deviation[j] = math.Sqrt(max(deviation[j]/n-mean[j]*mean[j], 0))
	}
	x, y := map[int][]float32{}, map[int][]float32{}
	last := 0
	for _, r := range rows {
		k := r.subject
		if last = max(last, k); heldOutPeople[k] {
			k = 0
		}
		y[k] = append(y[k], r.label)
		for j, v := range r.x {
			z := 0.0
			if deviation[j] > 0 {
				z = max(-most, min(most, (v-mean[j])/deviation[j]))
			}
			x[k] = append(x[k], float32(z))
		}
	}
	model := learner.Architecture{Kind: spec.ModelSoftmax, Inputs: inputs, Outputs: 6, Risk: spec.LossSoftmax,
		HasBias: true}
	var held []*learner.Samples[float32]
	for k := 1; k <= last; k++ {
		if y[k] != nil {
			held = append(held, learner.NewSamples(inputs, x[k], y[k]))
		}
	}
	return tested(model, held, learner.NewSamples(inputs, x[0], y[0]))
}

type harRow struct {
	subject int
	label   float32
	x       []float64
}

func readHAR(path string) (rows []harRow, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var text io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		if text, err = gzip.NewReader(f); err != nil {
			return nil, err
		}
	}
	lines := csv.NewReader(text)
	lines.ReuseRecord = true
	if _, err := lines.Read(); err != nil {
		return nil, err
	}
	for {
		record, err := lines.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil && len(record) <= harColumns {
			err = errors.New("no feature columns: want columns subject, test, label and at least one feature")
		}
		r := harRow{}
		if err == nil {
			err = r.parse(record)
		}
		if err != nil {
			line, _ := lines.FieldPos(0)
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		rows = append(rows, r)
	}
	for _, with := range []bool{true, false} {
		found := false
		for _, r := range rows {
			found = found || heldOutPeople[r.subject] != with
		}
		if !found {
			return nil, errors.New("no rows of training subjects or no rows of test subjects: want subjects 1 to 30")
		}
	}
	return rows, nil
}

func (r *harRow) parse(record []string) (err error) {
	if r.subject, err = strconv.Atoi(record[0]); err != nil {
		return err
	}
	label, err := strconv.Atoi(record[2])
	if err != nil || label < 1 || label > 6 {
		return fmt.Errorf("invalid label %q, want 1 to 6", record[2])
	}
	r.label = float32(label - 1)
	r.x = make([]float64, len(record)-harColumns)
	for j, v := range record[harColumns:] {
		if r.x[j], err = strconv.ParseFloat(v, 64); err != nil {
			return err
		}
	}
	return nil
}

// tested returns a problem with one training set per device. The metric of the problem is the accuracy on the rows of
// test.
func tested(model learner.Architecture, held []*learner.Samples[float32], test *learner.Samples[float32]) (
	*data.Problem[float32], error) {
	p, err := data.NewHeld(model, held)
	if err != nil {
		return nil, err
	}
	p.Metrics = data.Scores(model, test)
	return p, nil
}
