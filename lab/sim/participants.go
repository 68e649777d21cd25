package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/spec"
)

// Participants defines the participants of each round: the number of agents to draw, or a file with a list for each
// round. In a configuration it is written as 10 or FILE.json.
type Participants struct {
	Count int // number of agents drawn per round; 0 means all agents
	// File is the path of a JSON file with a list of agent numbers (from 0) for each round. An agent that is listed
	// twice has two draws.
	File string

	rounds [][]round.DrawnIndex // content of the file, after it was read
}

// Parse implements config.TextParser.
func (p *Participants) Parse(texts []string, list bool) (bad int, err error) {
	if list {
		return 0, errors.New("want a number, or the path of a file with the agents of each round")
	}
	*p = Participants{}
	if p.Count, err = strconv.Atoi(texts[0]); err != nil {
		p.Count, p.File = 0, texts[0]
	}
	return 0, nil
}

// String returns p in the syntax of configuration files.
func (p Participants) String() string {
	if p.File != "" {
		return p.File
	}
	return strconv.Itoa(p.Count)
}

// MarshalJSON encodes p as a number or as the path of a file.
func (p Participants) MarshalJSON() ([]byte, error) {
	if p.File != "" {
		return json.Marshal(p.File)
	}
	return json.Marshal(p.Count)
}

// UnmarshalJSON decodes the output of MarshalJSON.
func (p *Participants) UnmarshalJSON(text []byte) error {
	*p = Participants{}
	if json.Unmarshal(text, &p.Count) == nil {
		return nil
	}
	if json.Unmarshal(text, &p.File) != nil {
		return fmt.Errorf("want a number, or the path of a file, got %s", text)
	}
	return nil
}

// read reads and validates the file of participants. For FedDec, rounds is the number of server rounds.
func (p *Participants) read(agents, rounds int) error {
	text, err := os.ReadFile(p.File)
	var listed [][]int
	if err == nil {
		err = json.Unmarshal(text, &listed)
	}
	if err == nil && len(listed) < rounds {
		err = fmt.Errorf("has %d rounds, but the experiment has %d", len(listed), rounds)
	}
	p.rounds = nil
	for i, list := range listed {
		slices.Sort(list)
		places := []round.DrawnIndex{}
		for _, k := range list {
			if (k < 0 || k >= agents) && err == nil {
				err = fmt.Errorf("round %d contains agent %d; want 0 to %d", i+1, k, agents-1)
			}
			if n := len(places); n > 0 && places[n-1].Index == k {
				places[n-1].DrawCount++
			} else {
				places = append(places, round.DrawnIndex{Index: k, DrawCount: 1})
			}
		}
		p.rounds = append(p.rounds, places)
	}
	if err != nil {
		return &spec.FieldError{Key: "participants", Problem: fmt.Sprintf("%s: %v", p.File, err)}
	}
	return nil
}

// inRound returns the participants of round i ≥ 1 that the file lists. ok is false if there is no file.
func (p *Participants) inRound(i int) (places []round.DrawnIndex, ok bool) {
	if p.rounds == nil {
		return nil, false
	}
	return p.rounds[i-1], true
}
