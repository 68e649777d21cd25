package fold

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/fedmesh/fedmesh/wire"
)

// foldInput is the decoded input file: the updates and the state of the aggregation rule.
type foldInput struct {
	Updates []update        `json:"updates"`
	State   []nullableFloat `json:"state"` // previous aggregate, for rules that use it; missing means zero
	length  int             // number of elements of each update
}

type update struct {
	Agent  wire.AgentID    `json:"agent"`
	Values []nullableFloat `json:"values"`
	Times  *int            `json:"times"`  // number of times (n_k) that agent k was drawn; nil means 1
	Weight *float64        `json:"weight"` // weight of agent k relative to the mean weight; nil means 1
}

func (u *update) times() int {
	if u.Times == nil {
		return 1
	}
	return *u.Times
}

func (u *update) weight() float64 {
	if u.Weight == nil {
		return 1
	}
	return *u.Weight
}

// nullableFloat is a float64 that JSON represents as null if it is NaN or infinite.
type nullableFloat float64

// UnmarshalJSON implements json.Unmarshaler.
func (n *nullableFloat) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*n = nullableFloat(math.NaN())
		return nil
	}
	x, err := strconv.ParseFloat(string(text), 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return fmt.Errorf("%s is not a number", text)
	}
	*n = nullableFloat(x) // x is infinite if the number is out of range.
	return nil
}

func floats(numbers []nullableFloat) []float64 {
	v := make([]float64, len(numbers))
	for j, x := range numbers {
		v[j] = float64(x)
	}
	return v
}

// parse decodes and validates an input file.
func parse(text []byte) (*foldInput, error) {
	d := json.NewDecoder(bytes.NewReader(replaceNonFiniteByNull(text)))
	d.DisallowUnknownFields()
	f := &foldInput{}
	if err := d.Decode(f); err != nil {
		return nil, err
	}
	if len(f.Updates) == 0 || len(f.Updates[0].Values) == 0 {
		return nil, errors.New("updates: want at least one update with values")
	}
	seen := map[wire.AgentID]bool{}
	f.length = len(f.Updates[0].Values)
	for i := range f.Updates {
		u := &f.Updates[i]
		switch {
		case u.Agent == "":
			return nil, fmt.Errorf("updates[%d].agent: want an agent id, but it is empty", i)
		case seen[u.Agent]:
			return nil, fmt.Errorf("updates[%d].agent: duplicate agent %s; for an agent that was drawn twice, set "+
				"times: 2",
				i, u.Agent)
		case len(u.Values) != f.length:
			return nil, fmt.Errorf("updates[%d].values: got %d numbers, want %d as in updates[0].values", i,
				len(u.Values),
				f.length)
		case u.times() < 1 || u.times() > 1<<20:
			return nil, fmt.Errorf("updates[%d].times: got %d, want at least 1", i, u.times())
		case !(u.weight() > 0) || math.IsInf(u.weight(), 1):
			return nil, fmt.Errorf("updates[%d].weight: got %v, want a finite number above 0", i, u.weight())
		}
		seen[u.Agent] = true
	}
	if len(f.State) > 0 && len(f.State) != f.length {
		return nil, fmt.Errorf("state: got %d numbers, want %d as in updates[0].values", len(f.State), f.length)
	}
	for j, x := range f.State {
		if x-x != 0 {
			return nil, fmt.Errorf("state[%d]: got %v, want a finite number", j, x)
		}
	}
	return f, nil
}

// replaceNonFiniteByNull replaces NaN, Infinity and -Infinity outside of strings by null, because Python's json module
// writes these invalid values.
func replaceNonFiniteByNull(text []byte) []byte {
	var out []byte
	for quoted := false; len(text) > 0; {
		if !quoted {
			if rest, found := cutNonFiniteLiteral(text); found {
				out, text = append(out, "null"...), rest
				continue
			}
		}
		n := 1
		switch {
		case text[0] == '"':
			quoted = !quoted
		case text[0] == '\\' && quoted:
			n = min(2, len(text))
		}
		out, text = append(out, text[:n]...), text[n:]
	}
	return out
}

func cutNonFiniteLiteral(text []byte) (rest []byte, found bool) {
	for _, word := range []string{"NaN", "Infinity", "-Infinity"} {
		if rest, found = bytes.CutPrefix(text, []byte(word)); found {
			return rest, true
		}
	}
	return nil, false
}
