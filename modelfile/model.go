package modelfile

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// FormatVersion is the version of the metadata. Keys may be added to it.
const FormatVersion = 1

// Model is a model, where it comes from, and what it is used with.
type Model struct {
	TaskName        string
	Run             wire.RunID        // 0 in files that were written before it was told
	Version         wire.ModelVersion // in the run
	ParameterDigest wire.Digest       // of Vector: the model's address in the federation
	ParentModel     string            // the model with which its run began; empty = an initial one
	Features        []string
	Target          string          // empty of an autoencoder
	Recipe          *spec.RowRecipe // how rows are made of readings; nil if they are not

	Architecture    learner.Architecture // without ridge and δ, which only training needs
	Standardization learner.Standardization
	ParameterBytes  []byte // float32, as over the wire
	// PersonalTensors names the tensors of the architecture that each device keeps for itself. A coordinator's file
	// lacks these tensors, in Vector too, and cannot predict; a device's file has all tensors.
	PersonalTensors []string
}

// NewModel describes a model of a task, whose vector goes over the wire as data, with that hash.
func NewModel(t *wire.Task, a learner.Architecture, data []byte, hash wire.Digest) *Model {
	st := &t.Standardization
	var recipe *spec.RowRecipe
	if len(t.Recipe.Inputs) > 0 {
		r := t.Recipe
		recipe = &r
	}
	return &Model{Recipe: recipe,
		TaskName: t.Name, ParameterDigest: hash, Features: t.Features, Target: t.TargetColumn, ParameterBytes: data,
		Architecture:    a,
		Standardization: learner.Standardization{Mean: st.Mean, Scale: st.Scale, Clip: st.Clip}}
}

// PredictionTarget is the target of a model, with its unit and horizon.
type PredictionTarget struct {
	TargetColumn string        // the column; empty of an autoencoder
	Unit         string        // of predictions; empty if the task names none
	Horizon      time.Duration // from the row's time to the time that a prediction is for
}

// PredictionTarget returns the target of the model, its unit and its horizon.
func (m *Model) PredictionTarget() PredictionTarget {
	g := PredictionTarget{TargetColumn: m.Target}
	if m.Recipe == nil || m.Target == "" {
		return g
	}
	c, err := spec.ParseColumnExpression(m.Target)
	if err != nil {
		return g // a file of somebody else
	}
	if c.Operation == spec.OperationHorizon {
		g.Horizon = c.LagOrWindow
	}
	if i := m.Recipe.InputIndex(c.InputName); i >= 0 {
		in := &m.Recipe.Inputs[i]
		if g.Unit = in.Unit; g.Unit != "" && in.Transform == spec.TransformLog1p {
			g.Unit = "log1p(" + g.Unit + ")"
		}
	}
	return g
}

// Encode returns the file. The model is valid, and its vector has the length of its architecture without what is
// personal.
func (m *Model) Encode() ([]byte, error) {
	pieces, err := m.EncodePieces()
	return slices.Concat(pieces...), err
}

// EncodePieces returns the file in pieces, in memory of the vector's own but for the first.
func (m *Model) EncodePieces() ([][]byte, error) {
	a := m.Architecture
	meta := map[string]string{
		"format": "fedmesh", "format_version": strconv.Itoa(FormatVersion), "task": m.TaskName,
		"run": strconv.FormatUint(uint64(m.Run), 10), "version": strconv.FormatUint(uint64(m.Version), 10),
		"hash": hex.EncodeToString(m.ParameterDigest[:]),
		"kind": string(cmp.Or(a.Kind, spec.ModelKindFromLayers(len(a.HiddenUnits), a.Risk))), "risk": string(a.Risk),
		"activation": string(a.Activation), "target": m.Target,
	}
	if m.ParentModel != "" {
		meta["from"] = m.ParentModel
	}
	if pool := a.Convolution.PoolSteps; pool > 0 {
		meta["pool"] = strconv.Itoa(pool)
	}
	for key, v := range map[string]any{
		"features": m.Features, "mean": m.Standardization.Mean, "scale": m.Standardization.Scale,
		"clip": m.Standardization.Clip,
	} {
		text, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("a model's %s: %w", key, err)
		}
		meta[key] = string(text)
	}
	if m.IsExternal() {
		if err := encodeTensorOrder(meta, a.ExternalTensors); err != nil {
			return nil, err
		}
	}
	if m.Recipe != nil {
		if err := encodeRecipe(meta, m.Recipe); err != nil {
			return nil, err
		}
	}
	parts := a.NewParameterSplit(m.PersonalTensors)
	for i, t := range parts.OwnLayout {
		if i > 0 {
			meta["personal"] += " "
		}
		meta["personal"] += t.Name
	}
	var tensors []store.Tensor
	at := 0
	for _, t := range parts.SharedLayout {
		n := 4
		for _, d := range t.Shape {
			n *= d
		}
		tensors = append(tensors, store.Tensor{Name: t.Name, DType: "F32", Shape: t.Shape,
			Data: m.ParameterBytes[at : at+n]})
		at += n
	}
	return store.EncodeSafetensorsPieces(tensors, meta)
}

// IsExternal reports whether only the program that has trained the model knows how to predict with it.
func (m *Model) IsExternal() bool { return m.Architecture.Kind == spec.ModelExternal }

// Predictor returns what predicts with the model. An external one has none.
func (m *Model) Predictor() (*learner.Predictor[float32], error) {
	if m.IsExternal() {
		return nil, errors.New("its kind is external: the program that trained it knows how to predict with it")
	}
	w, err := m.Parameters()
	if err != nil {
		return nil, err
	}
	return learner.NewPredictor(m.Architecture, m.Standardization, w)
}

// Parameters returns the parameters of the model.
func (m *Model) Parameters() ([]float32, error) {
	w := make([]float32, len(m.ParameterBytes)/4)
	return w, wire.DecodeVector(w, m.ParameterBytes)
}

// IsSameModel reports whether two models are one.
func (m *Model) IsSameModel(other *Model) bool {
	return other != nil && m.ModelRef() == other.ModelRef()
}

// ModelRef names the model for programs.
func (m *Model) ModelRef() wire.ModelRef {
	return wire.ModelRef{Run: m.Run, Version: m.Version, ParametersDigest: m.ParameterDigest}
}

// IsComparableWith reports whether both predict one target from the same columns, so that they may be compared;
// external ones, whether they have the same tensors.
func (m *Model) IsComparableWith(other *Model) bool {
	a, b := m.Architecture, other.Architecture
	return m.Target == other.Target && slices.Equal(m.Features, other.Features) && a.Risk == b.Risk &&
		a.Outputs == b.Outputs && reflect.DeepEqual(m.Recipe, other.Recipe) && m.IsExternal() == other.IsExternal() &&
		slices.EqualFunc(a.ExternalTensors, b.ExternalTensors, func(t, u learner.TensorSpec) bool {
			return t.Name == u.Name && slices.Equal(t.Shape, u.Shape)
		})
}

// DisplayName names the model for a person: RUN/VERSION, as the coordinator's commands do.
func (m *Model) DisplayName() string { return m.ModelRef().String() }
