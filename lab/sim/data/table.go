package data

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/sources"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// table holds the rows of a problem before they are distributed to agents.
type table[T learner.Float] struct {
	samples *learner.Samples[T]
	devices []string // agent name of each row; nil unless a column contains the names
}

// readTable reads a CSV file in the same way as an agent. If withDevices is set, it also reads the column with the
// agent names.
func readTable[T learner.Float](s *Spec, path string, withDevices bool) (t *table[T], err error) {
	t = &table[T]{}
	t.samples, err = sources.ReadCSVFile[T](path, s.Features, s.Target)
	if err != nil || !withDevices {
		return t, err
	}
	r, err := sources.OpenTextFile(path)
	if err != nil {
		return t, err
	}
	defer r.Close()
	t.devices, err = column(csv.NewReader(r), path, s.Device)
	return t, err
}

// column returns all cells of one column of a CSV file that has already been validated.
func column(r *csv.Reader, path, name string) ([]string, error) {
	r.ReuseRecord = true
	header, err := r.Read()
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(header,
		func(h string) bool { return strings.TrimSpace(strings.TrimPrefix(h, "\ufeff")) == name })
	if at < 0 {
		return nil, &data.FileError{File: path, Line: 1, Column: name, Problem: "missing"}
	}
	var texts []string
	for {
		record, err := r.Read()
		if err == io.EOF {
			return texts, nil
		}
		if err != nil {
			return nil, err
		}
		text := strings.TrimSpace(record[at])
		if text == "" {
			line, _ := r.FieldPos(at)
			return nil, &data.FileError{File: path, Line: line, Column: name, Problem: "the cell is empty, want the " +
				"name of the device"}
		}
		texts = append(texts, strings.Clone(text))
	}
}

// newBlobs draws rows of Gaussian classes with the labels 0, 1, … The centre of each class is drawn from N(0, I). The
// rows of a class are normally distributed around the centre.
func newBlobs[T learner.Float](s *Spec, rng *rand.Rand) *table[T] {
	centres := make([]float64, s.Model.Classes*s.Inputs)
	for j := range centres {
		centres[j] = rng.NormFloat64()
	}
	x, y := make([]T, s.Rows*s.Inputs), make([]T, s.Rows)
	for i := range y {
		c := rng.IntN(s.Model.Classes)
		y[i] = T(c)
		for j := range s.Inputs {
			x[i*s.Inputs+j] = T(centres[c*s.Inputs+j] + math.Sqrt(s.Variance)*rng.NormFloat64())
		}
	}
	return &table[T]{samples: learner.NewSamples(s.Inputs, x, y)}
}

// newTable returns a problem whose rows come from one table, either random or read from a CSV file.
func newTable[T learner.Float](s *Spec, agents int, weights []float64, byRows bool, seed uint64) (*Problem[T], error) {
	var t *table[T]
	var err error
	if s.Kind == KindBlobs {
		t = newBlobs[T](s, source(seed, forRows, 0))
	} else if t, err = readTable[T](s, s.File, s.Partition == PartitionColumn); err != nil {
		return nil, &spec.FieldError{Key: "data.file", Problem: err.Error()}
	}
	model := s.architecture(t.samples.FeatureCount())
	standardize := func(*learner.Samples[T]) error { return nil }
	if s.Standardize {
		st := model.PoolChannelMoments(learner.ComputeColumnMoments(t.samples)).Standardization(model.Risk, 0)
		standardize = func(x *learner.Samples[T]) error { return x.Standardize(st) }
	}
	prepare := func(x *learner.Samples[T]) error {
		if _, err := x.MapLabels(model, learner.LabelHistory{}); err != nil {
			return &spec.FieldError{Key: "data.target", Problem: err.Error()}
		}
		return standardize(x)
	}
	if err := prepare(t.samples); err != nil {
		return nil, err
	}
	held, labels, err := t.split(s, model, agents, source(seed, forPartition, 0))
	if err != nil {
		return nil, err
	}
	var out []*learner.Samples[T]
	if s.OwnHeldOut > 0 {
		if held, out, err = HoldOut(held, s.OwnHeldOut); err != nil {
			return nil, &spec.FieldError{Key: "data.own_held_out", Problem: err.Error()}
		}
	}
	if byRows {
		weights = make([]float64, len(held))
		for k, h := range held {
			weights[k] = float64(h.Len())
		}
	}
	if err := checkWeights(weights, len(held)); err != nil {
		return nil, err
	}
	p, err := NewRows(model, held, weights)
	if err != nil {
		return nil, err
	}
	p.Labels, p.HeldOut = labels, out
	test := t.samples
	if s.HeldOut != "" {
		other, err := readTable[T](s, s.HeldOut, false)
		if err == nil {
			err = prepare(other.samples)
		}
		if err != nil {
			return nil, &spec.FieldError{Key: "data.held_out", Problem: err.Error()}
		}
		test = other.samples
	}
	p.Metrics = Scores(model, test)
	return p, nil
}

// split distributes the rows to the agents. If a column contains the agent names, the agents are sorted by name.
func (t *table[T]) split(s *Spec, model learner.Architecture, agents int, rng *rand.Rand) ([]*learner.Samples[T],
	[]string, error) {
	var parts [][]int
	var labels []string
	if s.Partition == PartitionColumn {
		members := map[string][]int{}
		for i, d := range t.devices {
			members[d] = append(members[d], i)
		}
		for d := range members {
			labels = append(labels, d)
		}
		slices.Sort(labels)
		for _, d := range labels {
			parts = append(parts, members[d])
		}
		if agents != 0 && agents != len(parts) {
			return nil, nil, &spec.FieldError{Key: "agents",
				Problem: fmt.Sprintf("is %d, but column %q names %d agents (0 = all)", agents, s.Device, len(parts))}
		}
	} else {
		y := make([]float64, t.samples.Len())
		for i := range y {
			_, v := t.samples.Row(i)
			y[i] = float64(v)
		}
		classes := model.LabelSet().ClassCount
		if model.LabelSet().IsBinary {
			classes = 2
		}
		var err error
		if parts, err = s.deal(y, classes, agents, rng); err != nil {
			return nil, nil, err
		}
	}
	held := make([]*learner.Samples[T], len(parts))
	for k, rows := range parts {
		held[k] = pick(t.samples, rows)
	}
	return held, labels, nil
}

// pick returns a copy of the given rows.
func pick[T learner.Float](s *learner.Samples[T], rows []int) *learner.Samples[T] {
	slices.Sort(rows)
	var x, y []T
	for _, i := range rows {
		h, v := s.Row(i)
		x, y = append(x, h...), append(y, v)
	}
	return learner.NewSamples(s.FeatureCount(), x, y)
}
