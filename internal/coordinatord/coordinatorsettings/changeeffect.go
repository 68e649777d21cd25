package coordinatorsettings

import (
	"strings"

	"github.com/fedmesh/fedmesh/internal/config"
)

// ChangeEffect describes how a changed key takes effect.
type ChangeEffect string

// Effects of a changed setting, ordered from the least to the most disruptive.
const (
	// EffectNextRound means that the change takes effect in the next round. The run continues with its model.
	EffectNextRound ChangeEffect = "goes on"
	// EffectNewRunFromModel means that the change needs a new run, which can start from the current model.
	EffectNewRunFromModel ChangeEffect = "new run from the present model"
	// EffectNewRunFromInitial means that the change needs a new run that starts from an initial model.
	EffectNewRunFromInitial ChangeEffect = "new run from an initial model"
)

// effects maps keys and sections of [AppliedSettings] to the effect of a change. The longest matching entry applies.
var effects = map[string]struct {
	effect ChangeEffect
	note   string
}{
	"task.name":              {EffectNextRound, ""},
	"task.features":          {EffectNewRunFromInitial, "the model has different inputs"},
	"task.target":            {EffectNewRunFromInitial, "the model predicts a different target"},
	"task.grid":              {EffectNewRunFromInitial, "the training rows are different"},
	"task.inputs":            {EffectNewRunFromInitial, "the training rows are different"},
	"task.model":             {EffectNewRunFromInitial, "the shape or the meaning of the model changes"},
	"task.model.ridge":       {EffectNextRound, ""},
	"task.model.huber_delta": {EffectNextRound, ""},
	"task.model.trainer":     {EffectNewRunFromModel, "a different program trains the model"},
	"task.model.frozen":      {EffectNewRunFromModel, "the frozen layers keep their current parameters"},
	"task.exchange":          {EffectNextRound, ""},
	"task.codec": {EffectNextRound,
		"agents keep the parts of their updates that top_k has not sent yet"},
	"task.batch_size":     {EffectNextRound, ""},
	"task.response":       {EffectNextRound, ""},
	"task.gradient_noise": {EffectNextRound, ""},
	"task.step_size":      {EffectNextRound, "the schedule continues"},
	"task.proximal":       {EffectNextRound, ""},
	"task.steps":          {EffectNextRound, "the schedule continues"},
	"task.mixing": {EffectNextRound, "agents begin a new sequence of local steps and parameter " +
		"exchanges"},
	"task.mixing.server_every":    {EffectNewRunFromModel, ""},
	"task.personal.layers":        {EffectNewRunFromInitial, "agents share different tensors"},
	"task.personal.method":        {EffectNextRound, "personal models are reset"},
	"task.personal.lambda":        {EffectNextRound, ""},
	"task.finetune":               {EffectNextRound, ""},
	"task.min_rows":               {EffectNextRound, ""},
	"task.standardize":            {EffectNewRunFromInitial, "the model was trained with a different standardisation"},
	"task.standardize_at":         {EffectNextRound, ""},
	"task.clip":                   {EffectNewRunFromModel, "the columns keep their standardisation"},
	"round":                       {EffectNextRound, ""},
	"round.algorithm":             {EffectNewRunFromModel, ""},
	"round.aggregation":           {EffectNextRound, "the state of the aggregation rule is kept"},
	"round.aggregation.rule":      {EffectNextRound, "the last aggregate of centered_clipping is reset"},
	"round.server_optimizer":      {EffectNextRound, "the state of the server optimiser is kept"},
	"round.server_optimizer.name": {EffectNextRound, "the state of the server optimiser is reset"},
	"mesh": {EffectNextRound, "agents begin a new sequence of local steps and parameter " +
		"exchanges"},
	"predict":         {EffectNextRound, ""},
	"predict.rollout": {EffectNextRound, "if rollout is disabled, the rollout in progress is discarded"},
}

// Change describes a key that differs between two applied settings.
type Change struct {
	Key         string       `json:"key"`
	Before      string       `json:"before"`
	After       string       `json:"after"`
	Effect      ChangeEffect `json:"effect"`
	Consequence string       `json:"note,omitempty"` // consequence for the state that the federation keeps
}

// DiffApplied returns the settings that differ between before and after, in file order, and the most disruptive of
// their effects. The effect is empty if nothing differs.
func DiffApplied(before, after AppliedSettings) (all []Change, effect ChangeEffect) {
	for _, c := range config.Changes(&before, &after) {
		e := effects[effectKeyFor(c.Key)]
		all = append(all, Change{c.Key, c.Before, c.After, e.effect, e.note})
		effect = strongerEffect(effect, e.effect)
	}
	return all, effect
}

// IsAppliedKey reports whether a key of coordinator.yaml belongs to the applied settings.
func IsAppliedKey(key string) bool { return effectKeyFor(key) != "" }

// effectKeyFor returns the longest entry of effects that matches key or a section that contains key. It returns "" if
// no entry matches.
func effectKeyFor(key string) string {
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

func strongerEffect(a, b ChangeEffect) ChangeEffect {
	for _, e := range []ChangeEffect{EffectNewRunFromInitial, EffectNewRunFromModel, EffectNextRound} {
		if a == e || b == e {
			return e
		}
	}
	return ""
}
