package coordinatorsettings

import (
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/internal/config"
)

// TestEveryKeyHasAnEffect checks that each key has an effect and that each effect belongs to an existing key.
func TestEveryKeyHasAnEffect(t *testing.T) {
	keys, used := config.Keys(&AppliedSettings{}), map[string]bool{}
	for _, key := range keys {
		entry := effectKeyFor(key)
		if used[entry] = true; entry == "" {
			t.Errorf("%s has no effect", key)
		}
	}
	for entry := range effects {
		if !used[entry] {
			t.Errorf("no key goes by the effect of %s", entry)
		}
	}
}

// TestChanges checks that each changed key is reported with its values, and that the largest effect is returned.
func TestChanges(t *testing.T) {
	before := defaultApplied()
	before.Task.Features = []string{"a", "b"}
	if all, effect := DiffApplied(before, before); len(all) > 0 || effect != "" {
		t.Errorf("%v %s", all, effect)
	}
	after := before
	after.Task.Features, after.Round.Participants, after.Task.Model.FrozenTensors = []string{"a"}, 9, []string{"layer0"}
	all, effect := DiffApplied(before, after)
	want := []Change{
		{"task.features", "[a, b]", "[a]", EffectNewRunFromInitial, effects["task.features"].note},
		{"task.model.frozen", "[]", "[layer0]", EffectNewRunFromModel, effects["task.model.frozen"].note},
		{"round.participants", "6", "9", EffectNextRound, ""},
	}
	if !slices.Equal(all, want) || effect != EffectNewRunFromInitial {
		t.Errorf("got %v, %s", all, effect)
	}
	after.Task.Features = before.Task.Features
	if _, effect := DiffApplied(before, after); effect != EffectNewRunFromModel {
		t.Errorf("effect %s", effect)
	}
}
