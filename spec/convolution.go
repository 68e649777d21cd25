package spec

import "fmt"

// Convolution describes the filter layers of a conv1d model. The layers read the n features of a row as InputChannels
// channels of n/InputChannels time steps each, one channel after the other. Other kinds of models have the zero value.
type Convolution struct {
	InputChannels int `yaml:"channels" json:"channels,omitempty"`
	// KernelSteps is the number of time steps that each filter covers, in all channels.
	KernelSteps int `yaml:"kernel" json:"kernel,omitempty"`
	// FiltersPerLayer contains the number of filters of each layer, starting with the layer next to the input.
	FiltersPerLayer []int `yaml:"filters" json:"filters,omitempty"`
	// PoolSteps is the number of time steps per max-pooling window. The value 1 means no pooling.
	PoolSteps int `yaml:"pool" json:"pool,omitempty"`
}

// maxLayers is the maximum number of layers between the input and the output layer.
const maxLayers = 8

// Check validates the convolution without the number of features, and reports errors under the model's configuration
// key. The parameter on is true if the model is a conv1d, and hidden is the number of its other layers.
func (v *Convolution) Check(c *ProblemList, key string, on bool, hidden int) {
	if !on {
		const other = "this key is set to %v, but only the model kind conv1d supports this key: remove it"
		c.Require(v.InputChannels == 0, key+".channels", other, v.InputChannels)
		c.Require(v.KernelSteps == 0, key+".kernel", other, v.KernelSteps)
		c.Require(len(v.FiltersPerLayer) == 0, key+".filters", other, v.FiltersPerLayer)
		c.Require(v.PoolSteps == 0, key+".pool", other, v.PoolSteps)
		return
	}
	c.Require(len(v.FiltersPerLayer) >= 1, key+".filters",
		"invalid value %v: the model kind conv1d requires the number of filters per layer, such as [16]",
		v.FiltersPerLayer)
	c.Require(len(v.FiltersPerLayer)+hidden <= maxLayers, key+".filters",
		"the model has %d filter layers and %d hidden layers, but at most %d layers in total are allowed",
		len(v.FiltersPerLayer), hidden, maxLayers)
	for i, n := range v.FiltersPerLayer {
		c.Require(n >= 1 && n <= maxUnits, fmt.Sprintf("%s.filters[%d]", key, i), "invalid value %d: must be between "+
			"1 and %d", n, maxUnits)
	}
	for _, f := range []struct {
		name  string
		value int
	}{{"channels", v.InputChannels}, {"kernel", v.KernelSteps}, {"pool", v.PoolSteps}} {
		c.Require(f.value >= 1 && f.value <= maxUnits, key+"."+f.name, "invalid value %d: must be between 1 and %d "+
			"with the model kind conv1d",
			f.value,
			maxUnits)
	}
}

// StepsByLayer returns the number of time steps of each filter layer after pooling, for rows with the given number of
// features. It returns a [*FieldError] if the number of features does not fit. The convolution must have passed
// [Model.Check].
func (v *Convolution) StepsByLayer(features int) (steps []int, err error) {
	if features < 1 || features%v.InputChannels != 0 {
		return nil, &FieldError{"channels", fmt.Sprintf("invalid number of channels %d: %d features cannot be "+
			"divided into equal channels: add or remove features, or change channels", v.InputChannels, features)}
	}
	n := features / v.InputChannels
	for i, filters := range v.FiltersPerLayer {
		of := fmt.Sprintf("the %d output steps of filters[%d]", n, max(i-1, 0))
		if i == 0 {
			of = fmt.Sprintf("the %d steps of a channel (%d features in %d channels)", n, features, v.InputChannels)
		}
		if v.KernelSteps > n {
			return nil, &FieldError{"kernel", fmt.Sprintf("the kernel size %d exceeds %s: use at most %d, more "+
				"features or fewer filter layers", v.KernelSteps, of, n)}
		}
		if n += 1 - v.KernelSteps; v.PoolSteps > n {
			return nil, &FieldError{"pool", fmt.Sprintf("the pool size is %d, but a kernel of %d leaves only %d of "+
				"%s: use at most %d, more features or fewer filter layers", v.PoolSteps, v.KernelSteps, n, of, n)}
		}
		if n /= v.PoolSteps; int64(n)*int64(filters) > maxUnits {
			return nil, &FieldError{fmt.Sprintf("filters[%d]", i), fmt.Sprintf(
				"%d filters with %d steps per filter have %d units in total, but at most %d are allowed: use fewer "+
					"filters or a larger pool", filters, n,
				int64(n)*int64(filters), maxUnits)}
		}
		steps = append(steps, n)
	}
	return steps, nil
}

// CheckFeatureCount reports an error under the model's key if the convolution does not fit the number of features.
func (m *Model) CheckFeatureCount(c *ProblemList, key string, features int) {
	var found ProblemList
	if m.Kind != ModelConv1D || features == 0 {
		return
	}
	if m.Convolution.Check(&found, key, true, len(m.HiddenUnits)); found.ProblemCount() > 0 {
		return // Check has already reported the error.
	}
	if _, err := m.StepsByLayer(features); err != nil {
		c.AddSectionErrors(key, err)
	}
}
