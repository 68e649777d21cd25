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

// FormatVersion is the version of the metadata format. New keys may be added without changing it.
const FormatVersion = 1

// Model contains a trained model, its origin, and all information required for predictions.
type Model struct {
	TaskName        string
	Run             wire.RunID        // run number; 0 if the file was written by an old version
	Version         wire.ModelVersion // version of the model within the run
	ParameterDigest wire.Digest       // hash of ParameterBytes, which identifies the model
	ParentModel     string            // name of the run's initial model; empty for a new model
	Features        []string
	Target          string          // name of the target column; empty for an autoencoder
	Recipe          *spec.RowRecipe // rules for making rows from readings; nil without readings

	// Architecture is the model architecture without the ridge factor and the Huber loss parameter δ, which only
	// training requires.
	Architecture    learner.Architecture
	Standardization learner.Standardization
	ParameterBytes  []byte // parameters as float32, in the network encoding
	// PersonalTensors lists the tensors that each device trains for itself and does not send. A file of the coordinator
	// lacks these tensors and cannot be used for predictions. A file of a device contains all tensors.
	PersonalTensors []string
}

// NewModel returns a model for a task. data contains the parameters in the network encoding, and hash is their hash.
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

// PredictionTarget describes the value that a model predicts.
type PredictionTarget struct {
	TargetColumn string        // name of the target column; empty for an autoencoder
	Unit         string        // unit of predictions; empty if the task defines none
	Horizon      time.Duration // time from the row to the predicted target
}

// PredictionTarget returns the target of the model with its unit and horizon.
func (m *Model) PredictionTarget() PredictionTarget {
	g := PredictionTarget{TargetColumn: m.Target}
	if m.Recipe == nil || m.Target == "" {
		return g
	}
	c, err := spec.ParseColumnExpression(m.Target)
	if err != nil {
		return g // the file was not written by this program, so its target is ignored
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

// Encode returns the model file. The model must be valid. Its parameters must have the length of its architecture
// without personal tensors.
func (m *Model) Encode() ([]byte, error) {
	pieces, err := m.EncodePieces()
	return slices.Concat(pieces...), err
}

// EncodePieces returns the model file in pieces. All pieces except the first share memory with the parameters.
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
			return nil, fmt.Errorf("cannot encode %s of the model: %w", key, err)
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

// IsExternal reports whether only the external program that trained the model can make predictions with it.
func (m *Model) IsExternal() bool { return m.Architecture.Kind == spec.ModelExternal }

// Predictor returns a predictor for the model. It returns an error for an external model.
func (m *Model) Predictor() (*learner.Predictor[float32], error) {
	if m.IsExternal() {
		return nil, errors.New(
			"the model kind is external: only the program that trained the model can predict with it")
	}
	w, err := m.Parameters()
	if err != nil {
		return nil, err
	}
	return learner.NewPredictor(m.Architecture, m.Standardization, w)
}

// Parameters decodes the parameters of the model.
func (m *Model) Parameters() ([]float32, error) {
	w := make([]float32, len(m.ParameterBytes)/4)
	return w, wire.DecodeVector(w, m.ParameterBytes)
}

// IsSameModel reports whether both models have the same run, version and parameters.
func (m *Model) IsSameModel(other *Model) bool {
	return other != nil && m.ModelRef() == other.ModelRef()
}

// ModelRef returns the run, version and parameter hash that identify the model.
func (m *Model) ModelRef() wire.ModelRef {
	return wire.ModelRef{Run: m.Run, Version: m.Version, ParametersDigest: m.ParameterDigest}
}

// IsComparableWith reports whether both models predict the same target from the same columns, so that their scores can
// be compared. External models must also have the same tensors.
func (m *Model) IsComparableWith(other *Model) bool {
	a, b := m.Architecture, other.Architecture
	return m.Target == other.Target && slices.Equal(m.Features, other.Features) && a.Risk == b.Risk &&
		a.Outputs == b.Outputs && reflect.DeepEqual(m.Recipe, other.Recipe) && m.IsExternal() == other.IsExternal() &&
		slices.EqualFunc(a.ExternalTensors, b.ExternalTensors, func(t, u learner.TensorSpec) bool {
			return t.Name == u.Name && slices.Equal(t.Shape, u.Shape)
		})
}

// DisplayName returns the model name in the form RUN/VERSION, as used in the coordinator's commands.
func (m *Model) DisplayName() string { return m.ModelRef().String() }
