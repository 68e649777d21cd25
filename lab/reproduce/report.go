package reproduce

import (
	"bytes"
	"encoding/json"
	"math"
)

// Report is the result of an experiment.
type Report struct {
	About
	Holds    bool      `json:"holds"` // true if all findings hold
	Values   Values    `json:"values"`
	Findings []Finding `json:"findings"`
	Plots    []Plot    `json:"-"`
}

// Finding is a comparison of a measurement with an expectation.
type Finding struct {
	What     string `json:"what"`     // measured quantity, such as "K = 100, E = 10: E‖w⁰ − w‖²"
	Measured string `json:"measured"` // measured value, such as "2.31e-04 ± 0.05e-04"
	Expected string `json:"expected"` // expected value, such as "2.29e-04"
	Holds    bool   `json:"holds"`
}

// find adds a finding. The report holds only if all findings hold.
func (r *Report) find(f Finding) {
	r.Holds = (r.Holds || len(r.Findings) == 0) && f.Holds
	r.Findings = append(r.Findings, f)
}

// Values maps keys to numbers and keeps the order in which the keys were added.
type Values struct {
	keys    []string
	numbers map[string]float64
}

// Set sets the number of a key.
func (v *Values) Set(key string, number float64) {
	if v.numbers == nil {
		v.numbers = map[string]float64{}
	}
	if _, old := v.numbers[key]; !old {
		v.keys = append(v.keys, key)
	}
	v.numbers[key] = number
}

// Keys returns the keys in the order in which they were added.
func (v *Values) Keys() []string { return v.keys }

// Get returns the number of a key, and whether it exists.
func (v *Values) Get(key string) (number float64, ok bool) {
	number, ok = v.numbers[key]
	return number, ok
}

// MarshalJSON encodes an object with the keys in order. Numbers that are not finite are encoded as null.
func (v Values) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, key := range v.keys {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(key)
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		number := []byte("null")
		if x := v.numbers[key]; !math.IsNaN(x) && !math.IsInf(x, 0) {
			if number, err = json.Marshal(x); err != nil {
				return nil, err
			}
		}
		b.Write(number)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}
