package spec

import "fmt"

// Convolution says how the kind conv1d reads a row, and what its filter layers are: the n features are Channels streams
// of n/Channels steps each, one channel after the other. The zero value is that of the other kinds.
type Convolution struct {
	InputChannels   int   `yaml:"channels" json:"channels,omitempty"`
	KernelSteps     int   `yaml:"kernel" json:"kernel,omitempty"`   // steps that a filter sees, of all channels
	FiltersPerLayer []int `yaml:"filters" json:"filters,omitempty"` // of each layer, from the input on
	PoolSteps       int   `yaml:"pool" json:"pool,omitempty"`       // steps of a layer of which the largest is kept; 1 = all are
}

// maxLayers bounds the layers of a model below the last.
const maxLayers = 8

// CheckIncompatibilities finds what cannot be whatever the features are; key is that of the model, on says that its
// kind is conv1d, and hidden is the number of its other layers.
func (v *Convolution) Check(c *ProblemList, key string, on bool, hidden int) {
	if !on {
		const other = "is %v; it goes with the kind conv1d, and with no other: remove it"
		c.Require(v.InputChannels == 0, key+".channels", other, v.InputChannels)
		c.Require(v.KernelSteps == 0, key+".kernel", other, v.KernelSteps)
		c.Require(len(v.FiltersPerLayer) == 0, key+".filters", other, v.FiltersPerLayer)
		c.Require(v.PoolSteps == 0, key+".pool", other, v.PoolSteps)
		return
	}
	c.Require(len(v.FiltersPerLayer) >= 1, key+".filters",
		"is %v; the kind conv1d needs it: filters of each layer, such as [16]",
		v.FiltersPerLayer)
	c.Require(len(v.FiltersPerLayer)+hidden <= maxLayers, key+".filters",
		"has %d layers, and hidden %d; want at most %d together",
		len(v.FiltersPerLayer), hidden, maxLayers)
	for i, n := range v.FiltersPerLayer {
		c.Require(n >= 1 && n <= maxUnits, fmt.Sprintf("%s.filters[%d]", key, i), "is %d; want 1 to %d", n, maxUnits)
	}
	for _, f := range []struct {
		name  string
		value int
	}{{"channels", v.InputChannels}, {"kernel", v.KernelSteps}, {"pool", v.PoolSteps}} {
		c.Require(f.value >= 1 && f.value <= maxUnits, key+"."+f.name, "is %d; want 1 to %d with the kind conv1d",
			f.value,
			maxUnits)
	}
}

// StepsByLayer returns how many steps each filter layer has after its pool, of a convolution that [Model.Check] has
// passed and rows of so many features. A [*FieldError] says what does not fit; its key is that of a field.
func (v *Convolution) StepsByLayer(features int) (steps []int, err error) {
	if features < 1 || features%v.InputChannels != 0 {
		return nil, &FieldError{"channels", fmt.Sprintf("is %d, and there are %d features, which are not as many "+
			"channels of one length: add or remove features, or change it", v.InputChannels, features)}
	}
	n := features / v.InputChannels
	for i, filters := range v.FiltersPerLayer {
		of := fmt.Sprintf("the %d steps that filters[%d] leaves", n, max(i-1, 0))
		if i == 0 {
			of = fmt.Sprintf("the %d steps of a channel (%d features in %d channels)", n, features, v.InputChannels)
		}
		if v.KernelSteps > n {
			return nil, &FieldError{"kernel", fmt.Sprintf("is %d, more than %s: want at most %d, or more features, "+
				"or fewer layers of filters", v.KernelSteps, of, n)}
		}
		if n += 1 - v.KernelSteps; v.PoolSteps > n {
			return nil, &FieldError{"pool", fmt.Sprintf("is %d, and a kernel of %d leaves %d of %s: want at most %d, "+
				"or more features, or fewer layers of filters", v.PoolSteps, v.KernelSteps, n, of, n)}
		}
		if n /= v.PoolSteps; int64(n)*int64(filters) > maxUnits {
			return nil, &FieldError{fmt.Sprintf("filters[%d]", i), fmt.Sprintf("is %d, and each has %d steps, "+
				"%d units together: want at most %d, by fewer filters or a larger pool", filters, n,
				int64(n)*int64(filters), maxUnits)}
		}
		steps = append(steps, n)
	}
	return steps, nil
}

// CheckFeatureCount finds what in the convolution of a model does not fit rows of so many features; key is that of the
// model.
func (m *Model) CheckFeatureCount(c *ProblemList, key string, features int) {
	var found ProblemList
	if m.Kind != ModelConv1D || features == 0 {
		return
	}
	if m.Convolution.Check(&found, key, true, len(m.HiddenUnits)); found.ProblemCount() > 0 {
		return // which Check tells
	}
	if _, err := m.StepsByLayer(features); err != nil {
		c.AddSectionErrors(key, err)
	}
}
