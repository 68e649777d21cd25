package data

import (
	"fmt"
	"math"
	"slices"

	"github.com/fedmesh/fedmesh/spec"
)

// validator collects the errors in the configuration section `data`.
type validator struct {
	spec.ProblemList
	agents int
}

func (v *validator) need(ok bool, key, format string, args ...any) {
	v.Require(ok, "data."+key, format, args...)
}

// numbers reports an error unless list has one of the given lengths and all elements are finite.
func (v *validator) numbers(key string, list []float64, lengths ...int) {
	v.need(slices.Contains(lengths, len(list)), key, "has %d numbers; want %s", len(list), or(lengths))
	for _, x := range list {
		v.need(!math.IsNaN(x) && !math.IsInf(x, 0), key, "has %v; want finite numbers", x)
	}
}

// positive reports an error unless all numbers are finite and positive. If strict is false, zero is also allowed.
func (v *validator) positive(key string, strict bool, list ...float64) {
	for _, x := range list {
		if strict {
			v.need(x > 0 && !math.IsInf(x, 0), key, "is %v; want a positive number", x)
		} else {
			v.need(x >= 0 && !math.IsInf(x, 0), key, "is %v; want 0 or more", x)
		}
	}
}

// rows reports an error unless rows is empty or has one row per agent, each with one of the given lengths.
func (v *validator) rows(key string, rows [][]float64, lengths ...int) {
	v.need(len(rows) == 0 || len(rows) == v.agents, key, "has %d rows; want one for each of the %d agents", len(rows),
		v.agents)
	for i, row := range rows {
		v.numbers(fmt.Sprintf("%s[%d]", key, i), row, lengths...)
	}
}

func (v *validator) atLeast(key string, n, least int) {
	v.need(n >= least, key, "is %d; want at least %d", n, least)
}

// or formats a list of lengths as text, for example "1 or 10".
func or(lengths []int) string {
	slices.Sort(lengths)
	lengths = slices.Compact(lengths)
	text := fmt.Sprint(lengths[0])
	for _, n := range lengths[1:] {
		text += fmt.Sprintf(" or %d", n)
	}
	return text
}

// maxModel is the maximum number of inputs, hidden units and rows. maxModel catches mistyped values.
const maxModel = 65536

// Validate returns an error that joins a [*spec.FieldError] for every invalid value. agents is the number of agents, or
// 0 if the data determine it.
func (s *Spec) Validate(agents int) error {
	v := &validator{agents: agents}
	v.need(s.Inputs <= maxModel, "inputs", "is %d; want at most %d", s.Inputs, maxModel)
	named := s.Kind == KindCSV && s.Partition == PartitionColumn
	if agents == 0 && !named {
		v.Require(false, "agents", "is 0; want at least 1, because these data do not name the agents")
	}
	switch s.Kind {
	case KindLinear:
		s.validateLinear(v)
	case KindLogistic, KindBilinear:
		v.positive("variance", false, s.Variance)
		v.positive("model.ridge", false, s.Model.Ridge)
		v.need(s.Kind == KindLogistic || len(s.Model.HiddenUnits) <= 1 && s.bilinearUnits() >= 1, "model.hidden",
			"is %v; want one number of units", s.Model.HiddenUnits)
		v.atLeast("inputs", s.Inputs, 1)
		v.rows("means", s.Means, s.Inputs)
	case KindRegression:
		v.atLeast("inputs", s.Inputs, 1)
		v.atLeast("rows", s.Rows, 1)
		v.positive("deviation", true, s.Deviation)
		v.positive("base", true, s.Base)
	case KindQuadratics:
		if s.Forms == nil {
			v.numbers("eigenvalues", s.Eigenvalues, max(1, len(s.Eigenvalues)))
			v.positive("eigenvalues", true, s.Eigenvalues...)
			v.rows("centres", s.Centres, len(s.Eigenvalues))
		}
	case KindToy:
		v.numbers("centre", s.Centre, max(1, len(s.Centre)))
		v.atLeast("rows", s.Rows, 1)
		v.positive("variance", false, s.Variance)
		v.need(s.Spread >= 0 && s.Spread <= 1, "spread", "is %v; want 0 to 1", s.Spread)
	case KindBlobs, KindCSV:
		s.validateTable(v)
	default:
		spec.RequireOneOf(&v.ProblemList, "data.kind", s.Kind, KindLinear, KindLogistic, KindBilinear, KindRegression,
			KindQuadratics, KindToy, KindBlobs, KindCSV)
	}
	s.validateSize(v)
	return v.Err()
}

// maxHeld is the largest number of values that an instance stores: two gigabytes.
const maxHeld = 1 << 28

// validateSize returns an error if a mistyped value would exhaust the memory.
func (s *Spec) validateSize(v *validator) {
	key, rows, width := "rows", float64(s.Rows), float64(s.Inputs)
	agents := float64(v.agents)
	switch s.Kind {
	case KindLinear:
		key, rows = "pool", float64(s.Pool)
	case KindLogistic, KindBilinear:
		key, rows = "inputs", agents
	case KindRegression:
		rows *= agents
	case KindQuadratics:
		d := float64(len(s.Eigenvalues))
		key, rows, width = "eigenvalues", agents*d, d
	case KindToy:
		rows, width = rows*agents, float64(len(s.Centre))
	case KindCSV:
		return
	}
	v.need(rows*width <= maxHeld, key, "requires %.3g numbers for %d agents; want at most %d", rows*width, v.agents,
		maxHeld)
}

func (s *Spec) validateLinear(v *validator) {
	v.atLeast("inputs", s.Inputs, 1)
	v.positive("spread", false, s.Spread)
	v.numbers("noise_var", s.NoiseVar, 1, v.agents)
	v.positive("noise_var", false, s.NoiseVar...)
	v.numbers("centre", s.Centre, 1, s.Inputs)
	v.numbers("regressor_var", s.RegressorVar, 1, s.Inputs)
	v.positive("regressor_var", true, s.RegressorVar...)
	v.rows("regressors", s.Regressors, 1, s.Inputs)
	for i, row := range s.Regressors {
		v.positive(fmt.Sprintf("regressors[%d]", i), true, row...)
	}
	v.rows("optima", s.Optima, s.Inputs)
	v.need(s.Pool == 0 || s.Pool >= 10*s.Inputs, "pool",
		"is %d; want 0 for fresh samples, or at least 10 rows for each of the %d inputs", s.Pool, s.Inputs)
	v.need(s.Pool == 0 || len(s.Regressors) == 0 && len(s.NoiseVar) == 1, "pool",
		"is %d, but agents with shared rows require a single regressor_var and a single noise_var", s.Pool)
}

func (s *Spec) validateTable(v *validator) {
	s.Model.Check(&v.ProblemList, "data.model")
	v.need(s.Model.Kind != spec.ModelExternal, "model.kind", "is external, but simulations do not support external "+
		"models")
	v.need(s.Model.InitialModelFile == "", "model.initial", "is %q, but a simulation draws its initial model: remove "+
		"it",
		s.Model.InitialModelFile)
	spec.RequireOneOf(&v.ProblemList, "data.partition", s.Partition, PartitionColumn, PartitionUniform,
		PartitionDirichlet,
		PartitionShards)
	v.need(s.Partition != PartitionDirichlet || s.Alpha > 0, "alpha", "is %v; want a positive number", s.Alpha)
	v.need(s.OwnHeldOut >= 0 && s.OwnHeldOut < 1, "own_held_out", "is %v; want 0 (none), or a share below 1",
		s.OwnHeldOut)
	v.need(s.Partition != PartitionShards || s.Shards >= 1, "shards", "is %d; want at least 1", s.Shards)
	if s.Kind == KindBlobs {
		v.need(s.Partition != PartitionColumn, "partition", "is %q, but blobs have no column with the names of agents",
			s.Partition)
		v.need(s.Model.EffectiveLossKind() == spec.LossSoftmax, "model.kind",
			"is %q, but blobs require the kind softmax, or mlp or conv1d with the risk softmax", s.Model.Kind)
		v.atLeast("inputs", s.Inputs, 1)
		s.Model.CheckFeatureCount(&v.ProblemList, "data.model", max(s.Inputs, 0))
		v.atLeast("rows", s.Rows, 1)
		v.positive("variance", false, s.Variance)
		return
	}
	v.need(s.File != "", "file", "is empty; want the path of a CSV file")
	v.need(len(s.Features) > 0, "features", "is empty; want the names of columns")
	s.Model.CheckFeatureCount(&v.ProblemList, "data.model", len(s.Features))
	if s.Model.Kind.HasTarget() {
		v.need(s.Target != "", "target", "is empty; want the name of a column")
	} else {
		v.need(s.Target == "", "target", "is %q, but the kind %s has no target: remove it", s.Target, s.Model.Kind)
		v.need(s.Partition == PartitionColumn || s.Partition == PartitionUniform, "partition",
			"is %q, which distributes rows by target, but the kind %s has no target", s.Partition, s.Model.Kind)
	}
	v.need(s.Partition != PartitionColumn || s.Device != "", "device",
		"is empty; want the column with the names of the agents")
}
