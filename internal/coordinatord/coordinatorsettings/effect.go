package coordinatorsettings

import (
	"strings"

	"github.com/fedmesh/fedmesh/internal/config"
)

// Effect is what it takes to put a changed key into effect.
type Effect string

// The effects, the least first.
const (
	// GoesOn: from the next round on; the run goes on from its model.
	GoesOn Effect = "goes on"
	// FromPresent: in a new run that begins with the present model, or another one that fits.
	FromPresent Effect = "new run from the present model"
	// FromStart: in a new run that begins with an initial model.
	FromStart Effect = "new run from an initial model"
)

// effects are those of the keys of Applied; of two entries that fit a key the longer one counts. A key of a section
// that is named here goes by its section.
var effects = map[string]struct {
	effect Effect
	note   string
}{
	"task.name":                   {GoesOn, ""},
	"task.features":               {FromStart, "the model's inputs are others"},
	"task.target":                 {FromStart, "the model predicts something else"},
	"task.grid":                   {FromStart, "the rows are others"},
	"task.inputs":                 {FromStart, "the rows are others"},
	"task.model":                  {FromStart, "the model has another shape or another meaning"},
	"task.model.ridge":            {GoesOn, ""},
	"task.model.huber_delta":      {GoesOn, ""},
	"task.model.trainer":          {FromPresent, "another program trains the model"},
	"task.model.frozen":           {FromPresent, "layers are frozen as they are"},
	"task.exchange":               {GoesOn, ""},
	"task.codec":                  {GoesOn, "what agents have not sent of their updates (top_k) stays with them"},
	"task.batch_size":             {GoesOn, ""},
	"task.response":               {GoesOn, ""},
	"task.gradient_noise":         {GoesOn, ""},
	"task.step_size":              {GoesOn, "the schedule's time goes on"},
	"task.proximal":               {GoesOn, ""},
	"task.steps":                  {GoesOn, "the schedule's time goes on"},
	"task.mixing":                 {GoesOn, "another block of mixing begins"},
	"task.mixing.server_every":    {FromPresent, ""},
	"task.personal.layers":        {FromStart, "agents share other tensors"},
	"task.personal.method":        {GoesOn, "what is an agent's own begins anew"},
	"task.personal.lambda":        {GoesOn, ""},
	"task.finetune":               {GoesOn, ""},
	"task.min_rows":               {GoesOn, ""},
	"task.standardize":            {FromStart, "the model is of other columns"},
	"task.standardize_at":         {GoesOn, ""},
	"task.clip":                   {FromPresent, "the columns keep their standardisation"},
	"round":                       {GoesOn, ""},
	"round.algorithm":             {FromPresent, ""},
	"round.aggregation":           {GoesOn, "what is remembered of earlier rounds stays"},
	"round.aggregation.rule":      {GoesOn, "of centered_clipping the last aggregate begins anew"},
	"round.server_optimizer":      {GoesOn, "the optimiser's state stays"},
	"round.server_optimizer.name": {GoesOn, "the optimiser begins anew"},
	"mesh":                        {GoesOn, "another block of mixing begins"},
	"predict":                     {GoesOn, ""},
	"predict.rollout":             {GoesOn, "without it the rollout that is under way is forgotten"},
}

// Change is a key that differs between two applied parts.
type Change struct {
	Key    string `json:"key"`
	Before string `json:"before"`
	After  string `json:"after"`
	Effect Effect `json:"effect"`
	Note   string `json:"note,omitempty"` // what becomes of that which the federation remembers
}

// Changes returns the keys that differ, in the order of the file, and the effect of all together; "" if none differs.
func Changes(before, after AppliedSettings) (all []Change, effect Effect) {
	for _, c := range config.Changes(&before, &after) {
		e := effects[entryOf(c.Key)]
		all = append(all, Change{c.Key, c.Before, c.After, e.effect, e.note})
		effect = larger(effect, e.effect)
	}
	return all, effect
}

// IsApplied reports whether a key of coordinator.yaml is of the part that is applied.
func IsApplied(key string) bool { return entryOf(key) != "" }

// entryOf returns the longest entry of effects that is the key, or a section of it; "" if there is none.
func entryOf(key string) string {
	for {
		if _, ok := effects[key]; ok {
			return key
		}
		dot := strings.LastIndexByte(key, '.')
		if dot < 0 {
			return ""
		}
		key = key[:dot]
	}
}

func larger(a, b Effect) Effect {
	for _, e := range []Effect{FromStart, FromPresent, GoesOn} {
		if a == e || b == e {
			return e
		}
	}
	return ""
}
