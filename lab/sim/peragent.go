package sim

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/fedmesh/fedmesh/lab/sim/data"
)

// PerAgent is a number for each agent. It is one number for all agents, a list with one number per agent, or a
// distribution from which the numbers are drawn at the start of a run. In a file it is written as 10, [1, 2, 4],
// "uniform(1, 10)" or "geometric(5)".
type PerAgent struct {
	Values []float64 // one number for all agents, or one number per agent; nil for a distribution
	Draw   Draw
	A, B   float64 // parameters of the distribution
}

// Draw is a distribution of integers, from which the numbers of the agents are drawn.
type Draw string

// Supported distributions.
const (
	Uniform   Draw = "uniform"   // uniform distribution over the integers from A to B
	Geometric Draw = "geometric" // geometric distribution over 1, 2, … with mean A
)

// Each returns a PerAgent with the given numbers: one number for all agents, or one number per agent.
func Each(values ...float64) PerAgent { return PerAgent{Values: values} }

// At returns the number of agent k. A randomly drawn number depends only on the seed and k.
func (p *PerAgent) At(k int, seed uint64) float64 {
	if len(p.Values) == 1 {
		return p.Values[0]
	}
	return p.of(k, seed)
}

func (p *PerAgent) of(k int, seed uint64) float64 {
	switch p.Draw {
	case Uniform:
		return p.A + float64(p.rng(k, seed).IntN(int(p.B-p.A)+1))
	case Geometric:
		if p.A == 1 {
			return 1
		}
		return 1 + math.Floor(p.rng(k, seed).ExpFloat64()/-math.Log1p(-1/p.A))
	}
	return p.Values[k]
}

// least and most return the minimum and the maximum of all agents' numbers. A geometric distribution has no maximum, so
// most returns the mean.
func (p *PerAgent) least() float64 {
	switch p.Draw {
	case Uniform:
		return p.A
	case Geometric:
		return 1
	}
	return slices.Min(p.Values)
}

func (p *PerAgent) most() float64 {
	switch p.Draw {
	case Uniform:
		return p.B
	case Geometric:
		return p.A
	}
	return slices.Max(p.Values)
}

func (p *PerAgent) rng(k int, seed uint64) *rand.Rand {
	return rand.New(rand.NewPCG(data.Mix(seed, seedForPerAgentNumbers), data.Mix(seedForPerAgentNumbers, uint64(k))))
}

// allEqual reports whether PerAgent is one number for all agents.
func (p *PerAgent) allEqual() bool { return len(p.Values) == 1 }

// Parse sets p to the numbers or the distribution in texts. On error, bad is the index of the invalid text.
func (p *PerAgent) Parse(texts []string, list bool) (bad int, err error) {
	*p = PerAgent{}
	if name, rest, ok := strings.Cut(texts[0], "("); ok && !list {
		return 0, p.parseDraw(Draw(strings.TrimSpace(name)), strings.TrimSpace(rest))
	}
	for i, text := range texts {
		v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return i, fmt.Errorf("want a number, a list of numbers, %q or %q, got %q", "uniform(1, 10)",
				"geometric(5)", text)
		}
		p.Values = append(p.Values, v)
	}
	return 0, nil
}

func (p *PerAgent) parseDraw(name Draw, rest string) error {
	inner, ok := strings.CutSuffix(rest, ")")
	arguments := strings.Split(inner, ",")
	numbers := make([]float64, len(arguments))
	for i, a := range arguments {
		var err error
		numbers[i], err = strconv.ParseFloat(strings.TrimSpace(a), 64)
		ok = ok && err == nil
	}
	switch {
	case ok && name == Uniform && len(numbers) == 2:
		if lo, hi := numbers[0], numbers[1]; lo != math.Trunc(lo) || hi != math.Trunc(hi) || lo > hi ||
			math.Abs(lo) > 1e9 || hi > 1e9 {
			return fmt.Errorf("uniform(%v, %v): want two whole numbers of at most 1e9 in ascending order", lo, hi)
		}
		p.Draw, p.A, p.B = name, numbers[0], numbers[1]
	case ok && name == Geometric && len(numbers) == 1:
		if !(numbers[0] >= 1 && numbers[0] <= 1e6) {
			return fmt.Errorf("geometric(%v): the mean must be between 1 and 1e6", numbers[0])
		}
		p.Draw, p.A = name, numbers[0]
	default:
		return fmt.Errorf(`want "uniform(LOW, HIGH)" or "geometric(MEAN)", got "%s(%s"`, name, rest)
	}
	return nil
}

// String returns p in the syntax of configuration files.
func (p PerAgent) String() string {
	switch {
	case p.Draw == Uniform:
		return fmt.Sprintf("uniform(%v, %v)", p.A, p.B)
	case p.Draw == Geometric:
		return fmt.Sprintf("geometric(%v)", p.A)
	case len(p.Values) == 1:
		return strconv.FormatFloat(p.Values[0], 'g', -1, 64)
	}
	texts := make([]string, len(p.Values))
	for i, v := range p.Values {
		texts[i] = strconv.FormatFloat(v, 'g', -1, 64)
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

// MarshalJSON encodes a number, a list of numbers, or a distribution as text.
func (p PerAgent) MarshalJSON() ([]byte, error) {
	switch {
	case p.Draw != "":
		return json.Marshal(p.String())
	case len(p.Values) == 1:
		return json.Marshal(p.Values[0])
	}
	return json.Marshal(p.Values)
}

// UnmarshalJSON decodes the output of MarshalJSON.
func (p *PerAgent) UnmarshalJSON(text []byte) error {
	var one float64
	var list []float64
	var draw string
	switch {
	case json.Unmarshal(text, &one) == nil:
		*p = Each(one)
	case json.Unmarshal(text, &list) == nil:
		*p = PerAgent{Values: list}
	case json.Unmarshal(text, &draw) == nil:
		_, err := p.Parse([]string{draw}, false)
		return err
	default:
		return fmt.Errorf("want a number, a list of numbers or a distribution, got %s", text)
	}
	return nil
}
