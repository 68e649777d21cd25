package data

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Numbers is a list of numbers. In a file, a list of one number may be written as that number.
type Numbers []float64

// Parse sets n to the numbers in texts. On error, bad is the index of the first text that is not a finite number.
func (n *Numbers) Parse(texts []string, _ bool) (bad int, err error) {
	*n = make(Numbers, len(texts))
	for i, text := range texts {
		v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return i, fmt.Errorf("want a number or a list of numbers, got %q", text)
		}
		(*n)[i] = v
	}
	return 0, nil
}

// String returns n in the syntax of configuration files.
func (n Numbers) String() string {
	texts := make([]string, len(n))
	for i, v := range n {
		texts[i] = strconv.FormatFloat(v, 'g', -1, 64)
	}
	if len(n) == 1 {
		return texts[0]
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

// MarshalJSON encodes n as a number if it has one element, otherwise as a list.
func (n Numbers) MarshalJSON() ([]byte, error) {
	if len(n) == 1 {
		return json.Marshal(n[0])
	}
	return json.Marshal([]float64(n))
}

// UnmarshalJSON decodes a number or a list.
func (n *Numbers) UnmarshalJSON(text []byte) error {
	var one float64
	if json.Unmarshal(text, &one) == nil {
		*n = Numbers{one}
		return nil
	}
	return json.Unmarshal(text, (*[]float64)(n))
}
