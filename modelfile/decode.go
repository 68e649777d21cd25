package modelfile

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// Decode decodes a model file that Encode has written. It verifies that the tensors form a model and match the hash in
// the metadata. The returned parameters are a copy of the bytes in the file.
func Decode(file []byte) (*Model, error) {
	tensors, meta, err := store.DecodeSafetensors(file)
	if err != nil {
		return nil, err
	}
	if meta["format"] != "fedmesh" {
		return nil, errors.New(
			"the metadata does not contain format=fedmesh: use a file written by `coordinator model export`")
	}
	if v := meta["format_version"]; v != strconv.Itoa(FormatVersion) {
		return nil, fmt.Errorf("format_version is %q, but this program reads version %d: "+
			"use the program that wrote the file, or a later version", v, FormatVersion)
	}
	m := &Model{TaskName: meta["task"], Target: meta["target"], ParentModel: meta["from"]}
	if err := m.decodeMetadata(meta); err != nil {
		return nil, err
	}
	if names := meta["personal"]; names != "" {
		return nil, fmt.Errorf("the personal tensors %s are not in the file: use the model file of a device that has "+
			"these tensors",
			names)
	}
	external := meta["kind"] == string(spec.ModelExternal)
	if external {
		err = m.decodeExternalTensors(tensors, meta)
	} else {
		err = m.decodeTensors(tensors, meta)
	}
	if err != nil {
		return nil, err
	}
	m.ParameterDigest = wire.BlobDigest(m.ParameterBytes)
	if text := meta["hash"]; text != "" && text != hex.EncodeToString(m.ParameterDigest[:]) {
		return nil, fmt.Errorf("the tensors have hash %x, but the metadata specifies hash %s: the file is damaged",
			m.ParameterDigest,
			text)
	}
	if external {
		return m, nil
	}
	_, err = m.Predictor()
	return m, err
}

func (m *Model) decodeMetadata(meta map[string]string) error {
	for key, into := range map[string]any{"features": &m.Features, "mean": &m.Standardization.Mean,
		"scale": &m.Standardization.Scale, "clip": &m.Standardization.Clip, "version": &m.Version} {
		if err := json.Unmarshal([]byte(meta[key]), into); err != nil {
			return fmt.Errorf("metadata: %s is %q: %w", key, meta[key], err)
		}
	}
	if text := meta["run"]; text != "" {
		run, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return fmt.Errorf("metadata: run is %q, but must be a number", text)
		}
		m.Run = wire.RunID(run)
	}
	external := meta["kind"] == string(spec.ModelExternal)
	if (len(m.Features) == 0) != external || (m.Target != "") != spec.ModelKind(meta["kind"]).HasTarget() {
		return fmt.Errorf("metadata: %d features and the target %q are not valid for the kind %q", len(m.Features),
			m.Target, meta["kind"])
	}
	return m.decodeRecipe(meta)
}

// encodeTensorOrder stores the order of an external model's tensors in the metadata. This is necessary because the file
// sorts tensors by name.
func encodeTensorOrder(meta map[string]string, tensors []learner.TensorSpec) error {
	var names []string
	for _, t := range tensors {
		names = append(names, t.Name)
	}
	text, err := json.Marshal(names)
	meta["tensors"] = string(text)
	return err
}

// decodeExternalTensors reads the parameters of an external model from the file's tensors.
func (m *Model) decodeExternalTensors(tensors []store.Tensor, meta map[string]string) error {
	var names []string
	if err := json.Unmarshal([]byte(meta["tensors"]), &names); err != nil {
		return fmt.Errorf("metadata: tensors is %q: %w", meta["tensors"], err)
	}
	if len(names) != len(tensors) {
		return fmt.Errorf("the file has %d tensors, but its metadata lists %d", len(tensors), len(names))
	}
	a := learner.Architecture{Kind: spec.ModelExternal, Outputs: 1, Risk: spec.LossSquared}
	for _, name := range names {
		i := slices.IndexFunc(tensors, func(t store.Tensor) bool { return t.Name == name })
		if i < 0 || tensors[i].DType != "F32" {
			return fmt.Errorf("tensor %q is missing or is not of type F32", name)
		}
		a.ExternalTensors = append(a.ExternalTensors, learner.TensorSpec{Name: name, Shape: tensors[i].Shape})
		m.ParameterBytes = append(m.ParameterBytes, tensors[i].Data...)
	}
	m.Architecture = a
	return a.Validate()
}

// decodeTensors reads the architecture and the parameters of a model from the file's tensors.
func (m *Model) decodeTensors(tensors []store.Tensor, meta map[string]string) error {
	by := make(map[string]store.Tensor, len(tensors))
	for _, t := range tensors {
		by[t.Name] = t
	}
	a, err := m.decodeArchitecture(by, meta)
	if err != nil {
		return err
	}
	if a.Risk == spec.LossHuber {
		a.HuberDelta = 1 // any value, because δ does not affect predictions
	}
	if err := a.Validate(); err != nil {
		return err
	}
	if kind := meta["kind"]; kind != "" && kind != string(cmp.Or(a.Kind, spec.ModelKindFromLayers(len(a.HiddenUnits),
		a.Risk))) {
		if spec.ModelKind(kind).Validate() != nil {
			return fmt.Errorf("unknown model kind %q: use a later program version", kind)
		}
		return fmt.Errorf("the model kind %q does not match its tensors and its risk %q", kind, a.Risk)
	}
	layout := a.Layout()
	for _, want := range layout {
		t, ok := by[want.Name]
		if !ok || t.DType != "F32" || !slices.Equal(t.Shape, want.Shape) {
			if !ok {
				return fmt.Errorf("tensor %s is missing; expected type F32 and shape %v", want.Name, want.Shape)
			}
			return fmt.Errorf("tensor %s has type %s and shape %v; expected type F32 and shape %v",
				want.Name, t.DType, t.Shape, want.Shape)
		}
		m.ParameterBytes = append(m.ParameterBytes, t.Data...)
	}
	if len(by) != len(layout) {
		return fmt.Errorf("the file has %d tensors instead of %d", len(by), len(layout))
	}
	m.Architecture = a
	return nil
}

// decodeArchitecture derives the model architecture from the file's tensors, without validating it.
func (m *Model) decodeArchitecture(by map[string]store.Tensor, meta map[string]string) (learner.Architecture, error) {
	_, biased := by["layer0.bias"]
	a := learner.Architecture{Inputs: len(m.Features), HasBias: biased, Risk: spec.LossKind(meta["risk"]),
		Activation: spec.Activation(meta["activation"])}
	first := 0
	if meta["kind"] == string(spec.ModelConv1D) {
		var err error
		a.Kind = spec.ModelConv1D
		if a.Convolution, err = decodeConvolution(by, meta["pool"]); err != nil {
			return a, err
		}
		first = len(a.Convolution.FiltersPerLayer)
	}
	for i := first; ; i++ {
		t, ok := by[weightTensorName(i)]
		if !ok {
			break
		}
		if len(t.Shape) != 2 {
			return a, fmt.Errorf("tensor %s has shape %v, but must have two dimensions", t.Name, t.Shape)
		}
		if i > first {
			a.HiddenUnits = append(a.HiddenUnits, a.Outputs)
		}
		a.Outputs = t.Shape[0]
	}
	if meta["kind"] == string(spec.ModelAutoencoder) {
		if a.Kind = spec.ModelAutoencoder; a.Outputs != a.Inputs {
			return a, fmt.Errorf(
				"the last layer has %d units for %d features: in an autoencoder both numbers must be equal",
				a.Outputs, a.Inputs)
		}
		a.Outputs = 1
	}
	return a, nil
}

// decodeConvolution derives the filter layers from the tensors. A layer with a three-dimensional weight tensor is a
// filter layer.
func decodeConvolution(by map[string]store.Tensor, pool string) (c spec.Convolution, err error) {
	if c.PoolSteps, err = strconv.Atoi(pool); err != nil {
		return c, fmt.Errorf("metadata: pool is %q, but must be a number", pool)
	}
	for {
		t := by[weightTensorName(len(c.FiltersPerLayer))]
		if len(t.Shape) != 3 {
			return c, nil
		}
		if len(c.FiltersPerLayer) == 0 {
			c.InputChannels, c.KernelSteps = t.Shape[1], t.Shape[2]
		}
		c.FiltersPerLayer = append(c.FiltersPerLayer, t.Shape[0])
	}
}

// weightTensorName returns the name of the weight tensor of a layer.
func weightTensorName(layer int) string { return fmt.Sprintf("layer%d.weight", layer) }
