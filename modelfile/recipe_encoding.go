package modelfile

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/spec"
)

// recipeGridMetadata and recipeInputMetadata are the JSON forms of a row recipe under the metadata keys "grid" and
// "inputs". They use the same key names as coordinator.yaml.
type recipeGridMetadata struct {
	Step     string `json:"step"`
	Lateness string `json:"lateness"`
	Zone     string `json:"zone"`
}

type recipeInputMetadata struct {
	Name          string              `json:"name"`
	Unit          string              `json:"unit"`
	Range         []float64           `json:"range,omitempty"`
	Resampling    spec.Resampling     `json:"join"`
	Scale         spec.ValueTransform `json:"scale"`
	Classes       []string            `json:"classes,omitempty"`
	LabelLateness string              `json:"wait"`
	MaxAge        string              `json:"max_age,omitempty"`
	StuckAfter    string              `json:"stuck,omitempty"`
	Jump          float64             `json:"jump,omitempty"`
}

// encodeRecipe adds a recipe to the metadata.
func encodeRecipe(meta map[string]string, r *spec.RowRecipe) error {
	var inputs []recipeInputMetadata
	for _, in := range r.Inputs {
		text := recipeInputMetadata{in.Name, in.Unit, in.ValidRange, in.Resampling, in.Transform, in.Classes,
			in.LabelLateness.String(), "", "", in.MaxJump}
		if in.MaxAge > 0 {
			text.MaxAge = in.MaxAge.String()
		}
		if in.StuckAfter > 0 {
			text.StuckAfter = in.StuckAfter.String()
		}
		inputs = append(inputs, text)
	}
	for key, v := range map[string]any{
		"grid": recipeGridMetadata{r.Grid.Step.String(), r.Grid.Lateness.String(), r.Grid.TimeZone}, "inputs": inputs,
	} {
		text, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("cannot encode %s of the model: %w", key, err)
		}
		meta[key] = string(text)
	}
	return nil
}

// decodeRecipe reads the recipe from the metadata. It sets no recipe if the keys are missing.
func (m *Model) decodeRecipe(meta map[string]string) error {
	if meta["inputs"] == "" && meta["grid"] == "" {
		return nil
	}
	var g recipeGridMetadata
	var inputs []recipeInputMetadata
	for key, into := range map[string]any{"grid": &g, "inputs": &inputs} {
		if err := json.Unmarshal([]byte(meta[key]), into); err != nil {
			return fmt.Errorf("metadata: %s is %q: %w", key, meta[key], err)
		}
	}
	r := &spec.RowRecipe{Grid: spec.TimeGrid{TimeZone: g.Zone}}
	for _, in := range inputs {
		r.Inputs = append(r.Inputs, spec.InputSeries{Name: in.Name, Unit: in.Unit, ValidRange: in.Range,
			Resampling: in.Resampling,
			Transform:  in.Scale, Classes: in.Classes, MaxJump: in.Jump})
	}
	duration := func(into *time.Duration, text string) (err error) {
		if *into, err = time.ParseDuration(text); err != nil {
			err = fmt.Errorf("metadata: %w", err)
		}
		return err
	}
	if err := duration(&r.Grid.Step, g.Step); err != nil {
		return err
	}
	if err := duration(&r.Grid.Lateness, g.Lateness); err != nil {
		return err
	}
	for i, in := range inputs {
		if err := duration(&r.Inputs[i].LabelLateness, in.LabelLateness); err != nil {
			return err
		}
		if err := duration(&r.Inputs[i].MaxAge, cmp.Or(in.MaxAge, "0s")); err != nil {
			return err
		}
		if err := duration(&r.Inputs[i].StuckAfter, cmp.Or(in.StuckAfter, "0s")); err != nil {
			return err
		}
	}
	var problems spec.ProblemList
	if r.Check(&problems, "metadata"); problems.ProblemCount() == 0 {
		r.CheckColumns(&problems, "metadata", m.Features, m.Target)
	}
	m.Recipe = r
	return problems.Err()
}
